package hubbub

// Redirects, proxies, the versions of HTTP, and what is told of failures that are repeated.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// elsewhere redirects everything to a server that says yes to everything.
func elsewhere(t *testing.T, status int) (*Client, func() []asked) {
	target, requests := answering(t, &reply{200, `{"messages":[],"id":"1"}`, http.Header{"Etag": {`"7"`}}})
	client, _ := answering(t, &reply{status, "", http.Header{"Location": {target.http.url + "/there"}}})
	return client, requests
}

func TestAPermanentRedirectIsAnErrorThatNamesWhereTo(t *testing.T) {
	for _, status := range []int{301, 308} {
		client, requests := elsewhere(t, status)
		queue := client.Queue("q")
		works := map[string]func(context.Context) error{
			"put":    putting(client),
			"put if": putting(client, PutOptions{Revision: OnlyIf(3)}),
			"get":    getting(client),
			"delete": deleting(client, OnlyIf(3)),
			"create": func(ctx context.Context) error { return queue.Create(ctx, QueueSettings{}) },
			"queue":  func(ctx context.Context) error { _, err := queue.Send(ctx, "text"); return err },
			"send":   func(ctx context.Context) error { _, err := client.Room("r").Send(ctx, "text"); return err },
			"watch": func(ctx context.Context) error {
				for _, err := range client.Keys.Watch(ctx, "", FromNow()) {
					return err
				}
				return nil
			},
		}
		for what, work := range works {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			var refused *Error
			err := work(ctx)
			cancel()
			if !errors.As(err, &refused) || refused.Code != "unexpected" || refused.Status != status || refused.Retryable ||
				!strings.Contains(refused.Detail, "/there") {
				t.Error(status, what, err)
			}
		}
		if len(requests()) != 0 {
			t.Error(requests())
		}
	}
}

// moving redirects the first requests, as a load balancer does for a while.
type moving struct {
	status, most int32
	count        atomic.Int32
}

func (m *moving) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.count.Add(1) > m.most {
		return http.DefaultTransport.RoundTrip(r)
	}
	return &http.Response{
		StatusCode: int(m.status), Status: http.StatusText(int(m.status)), Body: http.NoBody, Request: r,
		Header: http.Header{"Location": {"http://127.0.0.1:1/there"}},
	}, nil
}

func TestATemporaryRedirectIsALostConnection(t *testing.T) {
	begin := "event: watching\ndata: {\"epoch\":\"e\",\"after\":1}\n\n"
	for _, status := range []int32{302, 303, 307} {
		moved := &moving{status: status, most: 3}
		options := quick()
		options.HTTPClient = &http.Client{Transport: moved}
		client := serving(t, options, func(frame object, p *peer) {
			if frame["type"] == "subscribe" {
				p.subscribed(frame, 1, "e")
				return
			}
			p.ack(frame, 1)
		})
		s, err := client.Room("r").Subscribe(FromNow())
		if err != nil {
			t.Fatal(err)
		}
		if found := take(t, s, 1); found != "ready" || moved.count.Load() != 4 {
			t.Error(status, found, moved.count.Load())
		}
		there := &reply{int(status), "", http.Header{"Location": {"/there"}}}
		client, requests := answering(t, there, there, &reply{200, begin, http.Header{"Etag": {`"7"`}}})
		for event, err := range client.Keys.Watch(within(t), "", FromNow()) {
			if err != nil || event != (KeyReady{"e", 1}) || len(requests()) != 3 {
				t.Error(status, event, err, requests())
			}
			break
		}
		client, requests = answering(t, there, there, &reply{200, "", http.Header{"Etag": {`"7"`}}})
		if _, err := client.Keys.Get(within(t), "k"); err != nil || len(requests()) != 3 {
			t.Error(status, err, requests())
		}
	}
}

func TestATemporaryRedirectThatStaysIsTold(t *testing.T) {
	client, requests := answering(t, &reply{302, "", http.Header{"Location": {"/there"}}})
	client.http.options.Patience = 20 * time.Millisecond
	isThere := func(err error) bool {
		return CodeOf(err) == "unexpected" && strings.Contains(err.Error(), "redirects to /there")
	}
	if err := getting(client)(within(t)); !isThere(err) || len(requests()) < 2 {
		t.Error(err, requests())
	}
	ctx, cancel := context.WithTimeout(within(t), 200*time.Millisecond)
	defer cancel()
	_, err := client.Room("r").Send(ctx, "text")
	if !errors.Is(err, context.DeadlineExceeded) || !isThere(err) || !isThere(client.LastError()) {
		t.Error(err, client.LastError())
	}
	for _, one := range requests() {
		if strings.Contains(one.uri, "there") {
			t.Error(one)
		}
	}
}

func TestIdleConnectionsToADeadServerCostOneAttempt(t *testing.T) {
	var isDead atomic.Bool
	var mu sync.Mutex
	old := map[string]bool{}
	lost := 0
	together := make(chan struct{})
	var waiting atomic.Int32
	options := quick()
	options.AnswerMax = 300 * time.Millisecond
	client := clientOf(t, options, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		isOld := isDead.Load() && old[r.RemoteAddr]
		if !isDead.Load() {
			old[r.RemoteAddr] = true
		}
		if isOld {
			lost++
		}
		mu.Unlock()
		if isOld {
			<-r.Context().Done()
			return
		}
		if !isDead.Load() {
			if waiting.Add(1) == 5 {
				close(together)
			}
			<-together
		}
		w.Header().Set("Etag", `"7"`)
	})
	var done sync.WaitGroup
	for range 5 {
		done.Add(1)
		go func() {
			defer done.Done()
			if err := getting(client)(within(t)); err != nil {
				t.Error(err)
			}
		}()
	}
	done.Wait()
	isDead.Store(true)
	err := getting(client)(within(t))
	mu.Lock()
	defer mu.Unlock()
	if err != nil || lost != 1 {
		t.Error(err, lost)
	}
}

func TestAPutIsDoneOnlyIfTheServerSaysSo(t *testing.T) {
	etag := http.Header{"Etag": {`"7"`}}
	client, _ := answering(t, &reply{200, "", etag})
	wantCodes(t, "protocol", putting(client), putting(client, PutOptions{Revision: OnlyIf(3)}))
	for _, status := range []int{201, 204} {
		client, _ := answering(t, &reply{status, "", etag})
		if revision, err := client.Keys.Put(within(t), "k", nil, PutOptions{Revision: OnlyIf(3)}); err != nil || revision != 7 {
			t.Error(status, revision, err)
		}
	}
}

// closing counts how often its idle connections are closed.
type closing struct {
	http.RoundTripper
	count int
}

func (c *closing) CloseIdleConnections() { c.count++ }

func TestATransportThatIsGivenStaysAsItIs(t *testing.T) {
	given := &closing{RoundTripper: http.DefaultTransport}
	httpClient := &http.Client{Transport: given}
	client := New("http://127.0.0.1:1", Options{HTTPClient: httpClient})
	client.Close()
	if given.count != 0 || httpClient.CheckRedirect != nil || client.http.client.Transport != http.RoundTripper(given) {
		t.Error(given.count)
	}
	own := New("http://127.0.0.1:1", Options{HTTPClient: &http.Client{}}).http.client.Transport.(*http.Transport)
	if own == http.DefaultTransport || own.Proxy != nil {
		t.Error("the transport is not its own, or asks for a proxy")
	}
}

func secure(t *testing.T) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"7"`)
		_, _ = w.Write([]byte(r.Proto))
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func TestItSpeaksHTTP1OverTLSToo(t *testing.T) {
	server := secure(t)
	client := New(server.URL, quick())
	t.Cleanup(client.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	client.http.ownTransport.TLSClientConfig = &tls.Config{RootCAs: roots}
	found, err := client.Keys.Get(within(t), "k")
	if err != nil || string(found.Value) != "HTTP/1.1" {
		t.Error(found, err)
	}
}

func TestWhyNothingComesIsTold(t *testing.T) {
	client := New(secure(t).URL, quick())
	t.Cleanup(client.Close)
	if err := client.LastError(); err != nil {
		t.Error(err)
	}
	s, err := client.Room("r").Subscribe(FromNow())
	if err != nil {
		t.Fatal(err)
	}
	works := map[string]func(context.Context) error{
		"send": func(ctx context.Context) error { _, err := client.Room("r").Send(ctx, "text"); return err },
		"next": func(ctx context.Context) error { _, err := s.Next(ctx); return err },
		"get":  getting(client),
	}
	for what, work := range works {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		err := work(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || CodeOf(err) != "unreachable" || !strings.Contains(err.Error(), "x509") {
			t.Error(what, err)
		}
		// Or who repeats what is retryable would never end.
		var last *Error
		if errors.As(err, &last) && last.Retryable {
			t.Error(what, "is worth another try with a context that is over")
		}
	}
	if err := client.LastError(); CodeOf(err) != "unreachable" || !strings.Contains(err.Error(), "x509") {
		t.Error(err)
	}
}

func TestWhyAWatchOrAPollGetsNothingIsToldUntilItDoes(t *testing.T) {
	busy := &reply{503, `{"code":"overloaded","retryable":true}`, http.Header{"Retry-After": {"0"}}}
	begin := "event: watching\ndata: {\"epoch\":\"e\",\"after\":1}\n\n"
	client, _ := answering(t, busy, &reply{200, begin, nil})
	for range client.Keys.Watch(within(t), "", FromNow()) {
		if err := client.LastError(); err != nil {
			t.Error(err)
		}
		break
	}
	for what, work := range map[string]func(context.Context, *Client){
		"watch": func(ctx context.Context, client *Client) {
			for range client.Keys.Watch(ctx, "", FromNow()) {
			}
		},
		"poll": func(ctx context.Context, client *Client) { _ = client.Queue("q").Poll(ctx, nil, PollOptions{}) },
	} {
		client, _ := answering(t, busy)
		client.http.options.Patience = time.Nanosecond
		soon := within(t)
		ctx, cancel := context.WithCancel(soon)
		ended := make(chan struct{})
		go func() {
			work(ctx, client)
			close(ended)
		}()
		for CodeOf(client.LastError()) != "overloaded" {
			if sleep(soon, time.Millisecond) != nil {
				t.Fatal(what)
			}
		}
		cancel()
		<-ended
		if err := client.LastError(); err != nil {
			t.Error(what, err)
		}
	}
}

func TestALostConnectionIsNoTroubleOnceThereIsAnother(t *testing.T) {
	var first error
	var client *Client
	client = serving(t, quick(), func(frame object, p *peer) {
		if p.number == 1 {
			_ = p.conn.Close(4409, "slow")
			return
		}
		first = client.LastError()
		p.ack(frame, 1)
	})
	if _, err := client.Room("r").Send(within(t), "text"); err != nil || first != nil {
		t.Error(err, first)
	}
}

func TestNamesOfDotsReachTheServer(t *testing.T) {
	client, requests := answering(t, &reply{200, `{"messages":[{"id":"1"}],"id":"1"}`, nil})
	for _, name := range []string{".", "..", "..."} {
		if err := client.Queue(name).Create(within(t), QueueSettings{}); err != nil {
			t.Error(err)
		}
		if _, err := client.Room(name).History(within(t), HistoryQuery{}); err != nil {
			t.Error(err)
		}
	}
	var found []string
	for _, one := range requests() {
		found = append(found, strings.TrimSuffix(strings.TrimPrefix(one.uri, "/v1"), "?"))
	}
	wanted := "/queues/%2E /rooms/%2E/messages /queues/%2E%2E /rooms/%2E%2E/messages /queues/... /rooms/.../messages"
	if strings.Join(found, " ") != wanted {
		t.Error(found)
	}
}

func TestAMessageSaysWhenItWasSent(t *testing.T) {
	var said []any
	room := serving(t, quick(), func(frame object, p *peer) {
		said = append(said, frame["timestamp"])
		if len(said) == 1 {
			_ = p.conn.Close(4409, "slow")
			return
		}
		p.ack(frame, 1)
	}).Room("r")
	before := time.Now().Truncate(time.Millisecond)
	if _, err := room.Send(within(t), "text"); err != nil {
		t.Fatal(err)
	}
	if _, err := room.Send(within(t), "text", SendOptions{Timestamp: "2026-01-31T12:00:00Z"}); err != nil {
		t.Fatal(err)
	}
	text, _ := said[0].(string)
	at, err := time.Parse("2006-01-02T15:04:05.000Z", text)
	if err != nil || at.Before(before) || time.Since(at) > time.Minute || said[1] != text || said[2] != "2026-01-31T12:00:00Z" {
		t.Error(said, err)
	}
}
