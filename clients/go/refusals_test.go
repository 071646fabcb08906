package hubbub

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestAnAnswerWithoutABodyIsWhatItsStatusSays(t *testing.T) {
	etag := func(revision string) http.Header { return http.Header{"Etag": {`"` + revision + `"`}} }
	for _, status := range []int{408, 429, 503} {
		busy := &reply{status, "", http.Header{"Retry-After": {"0"}}}
		client, requests := answering(t, busy, &reply{200, "", etag("4")}, &reply{204, "", etag("5")})
		if revision, err := client.Keys.Put(within(t), "k", []byte("v")); revision != 5 || err != nil || len(requests()) != 3 {
			t.Error(status, revision, err, requests())
		}
	}
	for status, wanted := range map[int]Error{
		401: {Code: "unauthorized"}, 403: {Code: "forbidden"}, 501: {Code: "not_supported"},
		429: {Code: "too_many_requests", Retryable: true},
	} {
		client, _ := answering(t, &reply{status, "", nil})
		client.http.options.Patience = time.Nanosecond
		_, err := client.Keys.Delete(within(t), "k", nil)
		var refused *Error
		if !errors.As(err, &refused) || refused.Code != wanted.Code || refused.Retryable != wanted.Retryable {
			t.Error(status, err)
		}
		if status == 403 && !strings.Contains(refused.Detail, "right to read") {
			t.Error(err)
		}
	}
	for _, body := range []string{"no", "null", `["no"]`, `{"message":"the quota is used up"}`} {
		client, _ := answering(t, &reply{429, body, nil})
		client.http.options.Patience = time.Nanosecond
		if _, err := client.Queue("q").State(within(t)); CodeOf(err) != "too_many_requests" || !strings.Contains(err.Error(), body) {
			t.Error(body, err)
		}
	}
}

// refusedBySocket is how sending ends; following ends with the same.
func refusedBySocket(t *testing.T, client *Client) string {
	s, err := client.Room("r").Subscribe(FromNow())
	if err != nil {
		return CodeOf(err)
	}
	_, sent := client.Room("r").Send(within(t), "text")
	if _, followed := s.Next(within(t)); CodeOf(followed) != CodeOf(sent) {
		t.Error(followed, sent)
	}
	return CodeOf(sent)
}

func TestAHandshakeThatNoRepetitionMakesBetterIsFinal(t *testing.T) {
	for status, code := range map[int]string{400: "malformed", 404: "not_found", 422: "invalid"} {
		client, requests := answering(t, &reply{status, `{"code":"` + code + `","detail":"why"}`, nil})
		if found := refusedBySocket(t, client); found != code || len(requests()) != 1 {
			t.Error(status, found, requests())
		}
	}
	client, _ := answering(t, &reply{408, "", nil}, &reply{404, "", nil})
	if found := refusedBySocket(t, client); found != "not_found" {
		t.Error(found)
	}
}

func TestAnAddressOrATokenThatCanNeverWorkIsRefusedAtOnce(t *testing.T) {
	refused := func(what string, client *Client) {
		defer client.Close()
		if found := refusedBySocket(t, client); found != "invalid" {
			t.Error(what, found)
		}
		if _, err := client.Keys.Get(within(t), "k"); CodeOf(err) != "invalid" {
			t.Error(what, err)
		}
	}
	for _, url := range []string{"127.0.0.1:8080", "localhost:8080", "ftp://h", "http://", ""} {
		refused(url, New(url, quick()))
	}
	for _, token := range []string{"a\nb", "a b", "ö"} {
		refused(token, New("http://127.0.0.1:1", withToken(token)))
		renewed := New("http://127.0.0.1:1", withToken("first"))
		renewed.SetToken(token)
		refused(token, renewed)
	}
}

func TestAnAcknowledgementThatFailsIsToldWhateverItsCode(t *testing.T) {
	taken := &reply{200, `{"messages":[{"id":"1"}]}`, nil}
	busy := &reply{503, "", http.Header{"Retry-After": {"0"}}}
	client, _ := answering(t, taken, busy, &reply{403, `{"code":"forbidden"}`, nil})
	client.http.options.Patience = time.Nanosecond
	var codes []string
	options := PollOptions{OnError: func(err error) { codes = append(codes, CodeOf(err)) }}
	err := client.Queue("q").Poll(within(t), func(context.Context, *Delivery) error { return nil }, options)
	if CodeOf(err) != "forbidden" || len(codes) != 1 || codes[0] != "unexpected" {
		t.Error(err, codes)
	}
}
