package hubbub

// Answers of somebody between the client and the server.

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

func wantCodes(t *testing.T, code string, works ...func(context.Context) error) {
	t.Helper()
	for i, work := range works {
		if err := work(within(t)); CodeOf(err) != code {
			t.Errorf("%d: %v instead of %s", i, err, code)
		}
	}
}

func getting(client *Client) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := client.Keys.Get(ctx, "k")
		return err
	}
}

func putting(client *Client, options ...PutOptions) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := client.Keys.Put(ctx, "k", []byte("v"), options...)
		return err
	}
}

func deleting(client *Client, revision *uint64) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := client.Keys.Delete(ctx, "k", revision)
		return err
	}
}

func TestOnlyTheServerSaysThatThereIsNoSuchKey(t *testing.T) {
	client, _ := answering(t, &reply{404, "", http.Header{"Content-Type": {"application/problem+json"}}})
	if wasThere, err := client.Keys.Delete(within(t), "k", nil); wasThere || err != nil {
		t.Error(wasThere, err)
	}
	client, requests := answering(t, &reply{404, "", http.Header{"Content-Type": {"text/html"}}})
	wantCodes(t, "not_found", deleting(client, nil), putting(client), getting(client))
	if len(requests()) != 3 {
		t.Error(requests())
	}
}

func TestASuccessWithoutTheTagOfAKeyIsNotTheServers(t *testing.T) {
	for _, header := range []http.Header{{}, {"Etag": {`"57-gzip"`}}, {"Etag": {`"a"`}}} {
		client, requests := answering(t, &reply{200, "", header})
		wantCodes(t, "protocol", getting(client), putting(client), putting(client, PutOptions{Revision: OnlyIf(3)}),
			deleting(client, nil))
		if len(requests()) != 4 {
			t.Error(requests())
		}
	}
	weak := http.Header{"Etag": {`W/"57"`}}
	client, requests := answering(t, &reply{200, "v", weak}, &reply{200, "", weak}, &reply{204, "", nil})
	if found, err := client.Keys.Get(within(t), "k"); err != nil || found.Revision != 57 {
		t.Error(found, err)
	}
	wasThere, err := client.Keys.Delete(within(t), "k", nil)
	if !wasThere || err != nil || requests()[2].header.Get("If-Match") != `"57"` {
		t.Error(wasThere, err, requests())
	}
}

func TestASuccessThatIsNotWhatTheServerAnswersIsNone(t *testing.T) {
	for _, page := range []string{"", "<html>", "null", `{"status":"ok"}`} {
		client, requests := answering(t, &reply{200, `{"messages":[{"id":"1"}]}`, nil}, &reply{200, page, nil})
		queue := client.Queue("q")
		taken, err := queue.Take(within(t), TakeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		works := []func(context.Context) error{
			func(ctx context.Context) error { return queue.Create(ctx, QueueSettings{}) },
			func(ctx context.Context) error { _, err := queue.State(ctx); return err },
			func(ctx context.Context) error { _, err := queue.Send(ctx, "text"); return err },
			func(ctx context.Context) error { _, err := queue.Take(ctx, TakeOptions{}); return err },
			taken[0].Ack,
			taken[0].Nack,
			func(ctx context.Context) error { return taken[0].NackAfter(ctx, 0) },
			func(ctx context.Context) error { return taken[0].Extend(ctx, 0) },
			func(ctx context.Context) error { _, err := client.Keys.List(ctx, "", "", 0); return err },
			deleting(client, OnlyIf(3)),
			func(ctx context.Context) error { _, err := client.Room("r").History(ctx, HistoryQuery{}); return err },
		}
		wantCodes(t, "protocol", works...)
		if len(requests()) != 1+len(works) {
			t.Error(requests())
		}
	}
}

func TestAnAnswerThatIsTooLongIsNotCutOff(t *testing.T) {
	value := strings.Repeat("v", answerBytesMax)
	more := ""
	client := clientOf(t, quick(), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"1"`)
		_, _ = io.WriteString(w, value)
		_, _ = io.WriteString(w, more)
	})
	if found, err := client.Keys.Get(within(t), "k"); err != nil || len(found.Value) != len(value) {
		t.Error(err)
	}
	more = "v"
	wantCodes(t, "protocol", getting(client))
}
