package hubbub

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPausesGrowHaveALimitAndARandomPart(t *testing.T) {
	options := Options{BackoffFirst: 100 * time.Millisecond, BackoffMax: time.Second}.withDefaults()
	for attempt, most := range map[int]time.Duration{0: 100, 1: 200, 2: 400, 3: 800, 4: 1_000, 5_000: 1_000} {
		if pause := options.pause(attempt, 0, 1); pause != most*time.Millisecond {
			t.Errorf("attempt %d: %v", attempt, pause)
		}
	}
	if pause := options.pause(9, 0, 0); pause != 0 {
		t.Errorf("no part at all: %v", pause)
	}
	if pause := options.pause(0, 3*time.Second, 0); pause != 3*time.Second {
		t.Errorf("shorter or longer than the server asks for: %v", pause)
	}
}

func TestAQueueMessageIsSentAgainWithItsID(t *testing.T) {
	overloaded := &reply{503, `{"code":"overloaded","retryable":true}`, http.Header{"Retry-After": {"0"}}}
	client, requests := answering(t, nil, overloaded, &reply{502, "bad gateway", nil}, &reply{201, `{"id":"7"}`, nil})
	receipt, err := client.Queue("a b").Send(within(t), "text")
	if err != nil || receipt.ID != "7" {
		t.Fatal(receipt, err)
	}
	got := requests()
	ids := map[any]bool{}
	for _, one := range got {
		ids[one.body["messageId"]] = true
	}
	if len(got) != 4 || len(ids) != 1 || got[0].uri != "/v1/queues/a%20b/messages" || got[0].body["sender"] != "ada" {
		t.Error(got)
	}
}

func TestAFinalRefusalIsNotRepeated(t *testing.T) {
	client, requests := answering(t, &reply{404, `{"code":"unknown_queue","retryable":false}`, nil})
	_, err := client.Queue("q").Take(within(t), TakeOptions{})
	if CodeOf(err) != "unknown_queue" || len(requests()) != 1 {
		t.Error(err, requests())
	}
}

func TestThePatienceEndsBeforeAPauseThatWouldExceedIt(t *testing.T) {
	tooMany := &reply{429, `{"code":"too_many_requests","retryable":true}`, http.Header{"Retry-After": {"3600"}}}
	client, requests := answering(t, tooMany)
	_, err := client.Queue("q").Send(within(t), "text")
	if CodeOf(err) != "too_many_requests" || len(requests()) != 1 {
		t.Error(err, requests())
	}
}

func TestTheContextEndsTheRepetition(t *testing.T) {
	client, _ := answering(t, nil)
	client.http.options.BackoffFirst, client.http.options.BackoffMax = time.Hour, time.Hour
	client.http.options.Patience = 100 * time.Hour
	ctx, cancel := context.WithCancel(within(t))
	failed := make(chan error)
	go func() {
		_, err := client.Queue("q").Send(ctx, "text")
		failed <- err
	}()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestWhatAnAttemptWithoutAnAnswerMayHaveDoneIsTold(t *testing.T) {
	failed := &reply{412, `{"code":"condition_failed","retryable":false}`, nil}
	// A proxy says nothing of what the server did.
	ofAProxy := &reply{502, "bad gateway", nil}
	for _, unanswered := range [][]*reply{{}, {nil}, {ofAProxy}} {
		code := "unconfirmed"
		if len(unanswered) == 0 {
			code = "condition_failed"
		}
		client, requests := answering(t, append(unanswered, failed)...)
		_, err := client.Keys.Put(within(t), "k", []byte("v"), PutOptions{Revision: OnlyIf(3)})
		if CodeOf(err) != code || requests()[0].header.Get("If-Match") != `"3"` {
			t.Error(code, err, requests())
		}
	}
	taken := &reply{200, `{"messages":[{"id":"1"}]}`, nil}
	client, _ := answering(t, taken, ofAProxy, &reply{409, `{"code":"stale_receipt"}`, nil})
	deliveries, err := client.Queue("q").Take(within(t), TakeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var stale *Error
	if err := deliveries[0].Ack(within(t)); !errors.As(err, &stale) || !stale.IsOpen {
		t.Error(err)
	}
	gone := &reply{404, `{"code":"unknown_key"}`, http.Header{"Content-Type": {"application/problem+json"}}}
	seen := &reply{200, "", http.Header{"Etag": {`"4"`}}}
	for wasThere, answers := range map[bool][]*reply{false: {gone, gone}, true: {nil, gone}} {
		client, _ := answering(t, append([]*reply{seen}, answers...)...)
		found, err := client.Keys.Delete(within(t), "k", nil)
		if err != nil || found != wasThere {
			t.Error(wasThere, found, err)
		}
	}
}

func TestAChangeNamesTheRevisionItSaw(t *testing.T) {
	etag := func(revision string) http.Header { return http.Header{"Etag": {`"` + revision + `"`}} }
	faster := &reply{412, `{"code":"condition_failed","retryable":false}`, nil}
	client, requests := answering(t, &reply{200, "", etag("4")}, faster, &reply{200, "", etag("6")}, &reply{204, "", etag("7")})
	if revision, err := client.Keys.Put(within(t), "k", []byte("v")); revision != 7 || err != nil {
		t.Error(revision, err)
	}
	var found []string
	for _, one := range requests() {
		found = append(found, one.method+one.header.Get("If-Match"))
	}
	if strings.Join(found, " ") != `HEAD PUT"4" HEAD PUT"6"` {
		t.Error(found)
	}
}

func TestAClosedClientTakesNothingMore(t *testing.T) {
	client, _ := answering(t, nil)
	client.Close()
	if _, err := client.Room("r").Send(within(t), "text"); CodeOf(err) != "closed" {
		t.Error(err)
	}
	if _, err := client.Room("r").Subscribe(FromNow()); CodeOf(err) != "closed" {
		t.Error(err)
	}
}

func TestAKeyOfAnyTextIsOnePath(t *testing.T) {
	client, requests := answering(t, &reply{201, "", http.Header{"Etag": {`"5"`}}})
	options := PutOptions{Revision: OnlyIf(0), TTL: 500 * time.Millisecond}
	revision, err := client.Keys.Put(within(t), "user:1/ä ?#%+", []byte("v"), options)
	got := requests()[0]
	if err != nil || revision != 5 || got.uri != "/kv/user%3A1/%C3%A4%20%3F%23%25%2B" {
		t.Error(revision, err, got)
	}
	if got.header.Get("If-None-Match") != "*" || got.header.Get("Hubbub-TTL") != "0.5" {
		t.Error(got.header)
	}
	if _, err := client.Keys.Get(within(t), "a/../b"); CodeOf(err) != "invalid" {
		t.Error(err)
	}
}

func TestAHandlerThatFailsGivesItsMessageBack(t *testing.T) {
	lease := func(id string) *reply {
		return &reply{200, `{"messages":[{"id":"` + id + `","message":"job ` + id + `","receipt":"r"}]}`, nil}
	}
	client, requests := answering(t, lease("1"), &reply{200, "{}", nil}, lease("2"), &reply{204, "", nil},
		&reply{403, `{"code":"forbidden"}`, nil})
	var seen, failures []string
	err := client.Queue("q").Poll(within(t), func(_ context.Context, d *Delivery) error {
		seen = append(seen, d.Message)
		if len(seen) == 1 {
			return errors.New("not now")
		}
		return nil
	}, PollOptions{OnError: func(err error) { failures = append(failures, err.Error()) }})
	if CodeOf(err) != "forbidden" || strings.Join(seen, ",") != "job 1,job 2" || strings.Join(failures, ",") != "not now" {
		t.Error(err, seen, failures)
	}
	var last []string
	for _, one := range requests()[:4] {
		last = append(last, one.uri[strings.LastIndex(one.uri, "/")+1:])
	}
	if strings.Join(last, ",") != "lease,nack,lease,ack" {
		t.Error(last)
	}
}

func TestWhatIsDoneIsAcknowledgedAfterItsContextEnded(t *testing.T) {
	lease := &reply{200, `{"messages":[{"id":"1","receipt":"r"}]}`, nil}
	for last, failed := range map[string]error{"ack": nil, "nack": errors.New("not now")} {
		client, requests := answering(t, lease, &reply{204, "", nil})
		ctx, cancel := context.WithCancel(within(t))
		err := client.Queue("q").Poll(ctx, func(context.Context, *Delivery) error {
			cancel()
			return failed
		}, PollOptions{})
		got := requests()
		if !errors.Is(err, context.Canceled) || !strings.HasSuffix(got[len(got)-1].uri, "/"+last) {
			t.Error(err, got)
		}
	}
}

func TestALeaseIsExtendedAfterItsContextEnded(t *testing.T) {
	client, requests := answering(t, &reply{200, `{"messages":[{"id":"1","receipt":"r"}]}`, nil}, &reply{204, "", nil})
	ctx, cancel := context.WithCancel(within(t))
	_ = client.Queue("q").Poll(ctx, func(context.Context, *Delivery) error {
		cancel()
		time.Sleep(100 * time.Millisecond)
		return nil
	}, PollOptions{Lease: 30 * time.Millisecond})
	if got := requests(); len(got) < 2 || !strings.HasSuffix(got[1].uri, "/extend") {
		t.Error(got)
	}
}

func TestPollWaitsAsLongAsTheServerAsksFor(t *testing.T) {
	client, requests := answering(t,
		&reply{429, `{"code":"too_many_requests","retryable":true}`, http.Header{"Retry-After": {"3600"}}})
	time.AfterFunc(200*time.Millisecond, client.Close)
	err := client.Queue("q").Poll(within(t), nil, PollOptions{})
	if CodeOf(err) != "closed" || len(requests()) != 1 {
		t.Error(err, len(requests()))
	}
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	arrived, ended := make(chan struct{}, 9), make(chan string, 3)
	client := clientOf(t, quick(), func(_ http.ResponseWriter, r *http.Request) {
		// Only then the server sees that the client is gone.
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	ctx := within(t)
	go func() {
		_, err := client.Queue("q").Send(ctx, "text")
		ended <- "send " + CodeOf(err)
	}()
	go func() { ended <- "poll " + CodeOf(client.Queue("q").Poll(ctx, nil, PollOptions{})) }()
	go func() {
		code := ""
		for _, err := range client.Keys.Watch(ctx, "", FromNow()) {
			code = CodeOf(err)
		}
		ended <- "watch " + code
	}()
	for range 3 {
		<-arrived
	}
	client.Close()
	var found []string
	for range 3 {
		select {
		case one := <-ended:
			found = append(found, one)
		case <-time.After(10 * time.Second):
			t.Fatal("it goes on", found)
		}
	}
	slices.Sort(found)
	if strings.Join(found, ", ") != "poll closed, send closed, watch " {
		t.Error(found)
	}
}

func TestWhatWasBegunWithAnOldTokenGoesOnWithTheNewOne(t *testing.T) {
	for _, code := range []string{"", "unauthorized"} {
		var client *Client
		client = clientOf(t, withToken("old"), func(w http.ResponseWriter, r *http.Request) {
			isOld := r.Header.Get("Authorization") == "Bearer old"
			if isOld && code == "" {
				client.SetToken("new")
			}
			refusal := `{"code":"unauthorized","retryable":false}`
			isWatch := r.URL.Path == "/v1/kv/watch"
			if isOld && !isWatch {
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = io.WriteString(w, refusal)
			} else if isOld {
				_, _ = io.WriteString(w, "event: error\ndata: "+refusal+"\n\n")
			} else if isWatch {
				_, _ = io.WriteString(w, "event: put\ndata: {\"key\":\"a\",\"revision\":5}\n\n")
			} else {
				_, _ = io.WriteString(w, `{"messages":[{"id":"1"}]}`)
			}
		})
		for _, err := range client.Keys.Watch(within(t), "", FromNow()) {
			if CodeOf(err) != code {
				t.Error(code, err)
			}
			break
		}
		if code == "" {
			client.SetToken("old")
		}
		if _, err := client.Queue("q").Take(within(t), TakeOptions{}); CodeOf(err) != code {
			t.Error(code, err)
		}
	}
}

func TestALostWatchGoesOnAndAnotherHistoryIsOneReset(t *testing.T) {
	begin := func(epoch, after string) string {
		return "event: watching\ndata: {\"epoch\":\"" + epoch + "\",\"after\":" + after + "}\n\n"
	}
	put := func(epoch, revision string) string {
		return "id: " + epoch + ":" + revision + "\nevent: put\ndata: {\"key\":\"a%20b\",\"revision\":" + revision + "}\n\n"
	}
	client, requests := answering(t,
		&reply{200, begin("e", "4") + put("e", "5"), nil},
		&reply{200, begin("e", "5") + ": still here\n\nid: e:9\n\n", nil},
		&reply{410, `{"code":"reset","retryable":false,"epoch":"f","oldest":1,"head":3}`, nil},
		&reply{200, begin("f", "3") + put("f", "4"), nil})
	var events []KeyEvent
	for event, err := range client.Keys.Watch(within(t), "a b", After(4, "e")) {
		if err != nil {
			t.Fatal(err)
		}
		if events = append(events, event); len(events) == 6 {
			break
		}
	}
	wanted := []KeyEvent{
		KeyReady{"e", 4}, KeyChange{"put", "a b", 5}, KeyReady{"e", 5}, Reset{"f", 1, 3, true}, KeyReady{"f", 3},
		KeyChange{"put", "a b", 4},
	}
	for i, event := range events {
		if event != wanted[i] {
			t.Errorf("%d: %v instead of %v", i, event, wanted[i])
		}
	}
	for i, cursor := range []string{"after=4&epoch=e", "after=5&epoch=e", "after=9&epoch=e", "after=3&epoch=f"} {
		if uri := requests()[i].uri; !strings.Contains(uri, cursor) {
			t.Error(uri, cursor)
		}
	}
}
