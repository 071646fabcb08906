// Lets the conformance programme drive this client; the commands are in ../../conformance/adapter.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	hubbub "hubbub/clients/go"
)

type object = map[string]any

var (
	writing sync.Mutex
	out     = json.NewEncoder(os.Stdout)
)

func say(frame object) {
	writing.Lock()
	defer writing.Unlock()
	_ = out.Encode(frame)
}

func errorOf(err error) object {
	var refused *hubbub.Error
	if errors.As(err, &refused) {
		return object{"code": refused.Code, "retryable": refused.Retryable, "isOpen": refused.IsOpen, "detail": refused.Detail}
	}
	return object{"code": err.Error()}
}

type command struct {
	ID        int
	Op        string
	Client    string
	Sub       string
	URL       string
	User      string
	Options   map[string]float64
	Room      string
	Text      string
	MessageID string
	After     *uint64
	Epoch     string
	BufferMax int
	Queue     string
	LeaseMs   int64
	Key       string
	Value     string
	Revision  *uint64
	Prefix    string
}

// stream is what a command began and another one ends.
type stream struct {
	ctx    context.Context
	cancel context.CancelFunc
	// Closed while it is not held.
	gate chan struct{}
}

type adapter struct {
	mu      sync.Mutex
	clients map[string]*hubbub.Client
	streams map[string]*stream
}

func (a *adapter) client(name string) *hubbub.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.clients[name]
}

func (a *adapter) begin(sub string) *stream {
	ctx, cancel := context.WithCancel(context.Background())
	s := &stream{ctx, cancel, make(chan struct{})}
	close(s.gate)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.streams[sub] = s
	return s
}

// report writes an event, once the stream is not held. False: it was stopped.
func (a *adapter) report(s *stream, sub, event string, members object) bool {
	a.mu.Lock()
	gate := s.gate
	a.mu.Unlock()
	<-gate
	if s.ctx.Err() != nil {
		return false
	}
	members["sub"], members["event"] = sub, event
	say(members)
	return true
}

func (a *adapter) end(s *stream, sub string, err error) {
	members := object{}
	if err != nil {
		members["error"] = errorOf(err)
	}
	a.report(s, sub, "end", members)
}

func resetMembers(e hubbub.Reset) object {
	return object{"epoch": e.Epoch, "oldest": e.Oldest, "head": e.Head, "historyReplaced": e.HistoryReplaced}
}

func (a *adapter) follow(s *stream, sub string, subscription *hubbub.Subscription) {
	defer subscription.Close()
	for event, err := range subscription.Events(s.ctx) {
		if err != nil {
			a.end(s, sub, err)
			return
		}
		var isGoing bool
		switch e := event.(type) {
		case hubbub.Ready:
			isGoing = a.report(s, sub, "ready", object{"epoch": e.Epoch, "oldest": e.Oldest, "head": e.Head})
		case hubbub.Message:
			isGoing = a.report(s, sub, "message", object{"message": e})
		case hubbub.Reset:
			isGoing = a.report(s, sub, "reset", resetMembers(e))
		}
		if !isGoing {
			return
		}
	}
	a.end(s, sub, nil)
}

func (a *adapter) watch(s *stream, sub string, keys *hubbub.Keys, prefix string, start hubbub.Start) {
	for event, err := range keys.Watch(s.ctx, prefix, start) {
		if err != nil {
			a.end(s, sub, err)
			return
		}
		switch e := event.(type) {
		case hubbub.KeyReady:
			a.report(s, sub, "ready", object{"epoch": e.Epoch, "revision": e.Revision})
		case hubbub.KeyChange:
			a.report(s, sub, e.Type, object{"key": e.Key, "revision": e.Revision})
		case hubbub.Reset:
			a.report(s, sub, "reset", resetMembers(e))
		}
	}
	a.end(s, sub, nil)
}

func (a *adapter) work(s *stream, sub string, queue *hubbub.Queue, lease time.Duration) {
	for s.ctx.Err() == nil {
		taken, err := queue.Take(s.ctx, hubbub.TakeOptions{Max: 3, Lease: lease, Wait: 500 * time.Millisecond})
		for _, delivery := range taken {
			a.report(s, sub, "delivery", object{"id": delivery.ID, "text": delivery.Message})
		}
		for _, delivery := range taken {
			outcome := "ok"
			var refused *hubbub.Error
			if acked := delivery.Ack(s.ctx); errors.As(acked, &refused) && refused.Code == "stale_receipt" {
				outcome = "stale"
				if refused.IsOpen {
					outcome = "open"
				}
			} else if acked != nil {
				err = acked
				break
			}
			a.report(s, sub, "acked", object{"id": delivery.ID, "outcome": outcome})
		}
		if err != nil {
			a.end(s, sub, err)
			return
		}
	}
}

// run does what is asked. What must begin in the order of the commands is done before it returns a function.
func (a *adapter) run(c command) func() (any, error) {
	ctx := context.Background()
	now := func(result any, err error) func() (any, error) { return func() (any, error) { return result, err } }
	switch c.Op {
	case "open":
		ms := func(name string) time.Duration { return time.Duration(c.Options[name] * float64(time.Millisecond)) }
		options := hubbub.Options{
			User: c.User, BackoffFirst: ms("backoffFirst"), BackoffMax: ms("backoffMax"), AnswerMax: ms("answerMax"),
			SilenceMax: ms("silenceMax"), Patience: ms("patience"),
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.clients[c.Client] = hubbub.New(c.URL, options)
		return now(nil, nil)
	case "close":
		client := a.client(c.Client)
		return func() (any, error) { client.Close(); return nil, nil }
	case "subscribe":
		start := hubbub.FromNow()
		if c.After != nil {
			start = hubbub.After(*c.After, c.Epoch)
		}
		subscription, err := a.client(c.Client).Room(c.Room).Subscribe(start, hubbub.SubscribeOptions{BufferMax: c.BufferMax})
		if err == nil {
			go a.follow(a.begin(c.Sub), c.Sub, subscription)
		}
		return now(nil, err)
	case "watch":
		start := hubbub.FromNow()
		if c.After != nil {
			start = hubbub.After(*c.After, "")
		}
		go a.watch(a.begin(c.Sub), c.Sub, a.client(c.Client).Keys, c.Prefix, start)
		return now(nil, nil)
	case "work":
		go a.work(a.begin(c.Sub), c.Sub, a.client(c.Client).Queue(c.Queue), time.Duration(c.LeaseMs)*time.Millisecond)
		return now(nil, nil)
	case "hold", "release", "stop":
		a.control(c)
		return now(nil, nil)
	}
	client := a.client(c.Client)
	switch c.Op {
	case "send":
		return send(ctx, client.Room(c.Room), c)
	case "queueSend":
		return func() (any, error) {
			return client.Queue(c.Queue).Send(ctx, c.Text, hubbub.QueueSendOptions{MessageID: c.MessageID})
		}
	case "put":
		return func() (any, error) {
			return client.Keys.Put(ctx, c.Key, []byte(c.Value), hubbub.PutOptions{Revision: c.Revision})
		}
	case "get":
		return func() (any, error) {
			found, err := client.Keys.Get(ctx, c.Key)
			if found == nil {
				return nil, err
			}
			return object{"value": string(found.Value), "revision": found.Revision}, nil
		}
	case "delete":
		return func() (any, error) { return client.Keys.Delete(ctx, c.Key, nil) }
	}
	return now(nil, errors.New("unknown operation "+c.Op))
}

// send begins at once: messages are stored in the order in which they were given to the client.
func send(ctx context.Context, room *hubbub.Room, c command) func() (any, error) {
	wait, err := room.SendLater(c.Text, hubbub.SendOptions{MessageID: c.MessageID})
	return func() (any, error) {
		if err != nil {
			return nil, err
		}
		return wait(ctx)
	}
}

func (a *adapter) control(c command) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.streams[c.Sub]
	switch c.Op {
	case "hold":
		s.gate = make(chan struct{})
	case "release":
		close(s.gate)
	case "stop":
		s.cancel()
		delete(a.streams, c.Sub)
	}
}

func main() {
	a := &adapter{clients: map[string]*hubbub.Client{}, streams: map[string]*stream{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			panic(err)
		}
		finish := a.run(c)
		go func() {
			result, err := finish()
			if err != nil {
				say(object{"id": c.ID, "error": errorOf(err)})
			} else {
				say(object{"id": c.ID, "ok": result})
			}
		}()
	}
}
