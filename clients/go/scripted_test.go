package hubbub

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

type object = map[string]any

func quick() Options {
	return Options{User: "ada", BackoffFirst: time.Millisecond, BackoffMax: 4 * time.Millisecond, Patience: 10 * time.Second}
}

// within bounds a test that waits for what never comes.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// withToken is who has a token instead of a name.
func withToken(token string) Options {
	options := quick()
	options.User, options.Token = "", token
	return options
}

// clientOf makes a client of a server that answers with handler.
func clientOf(t *testing.T, options Options, handler http.HandlerFunc) *Client {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client := New(server.URL+"/", options)
	t.Cleanup(client.Close)
	return client
}

// reply of a scripted server; nil breaks the connection.
type reply struct {
	status int
	body   string
	header http.Header
}

type asked struct {
	method, uri string
	header      http.Header
	body        object
}

// answering gives these answers one after another, the last one again and again.
func answering(t *testing.T, answers ...*reply) (*Client, func() []asked) {
	var mu sync.Mutex
	var requests []asked
	client := clientOf(t, quick(), func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		var body object
		_ = json.Unmarshal(text, &body)
		mu.Lock()
		requests = append(requests, asked{r.Method, r.RequestURI, r.Header, body})
		given := answers[min(len(requests), len(answers))-1]
		mu.Unlock()
		if given == nil {
			panic(http.ErrAbortHandler)
		}
		for name, values := range given.header {
			w.Header()[name] = values
		}
		w.WriteHeader(given.status)
		_, _ = io.WriteString(w, given.body)
	})
	return client, func() []asked {
		mu.Lock()
		defer mu.Unlock()
		return append([]asked(nil), requests...)
	}
}

// peer is the server's end of a socket.
type peer struct {
	t      *testing.T
	conn   *websocket.Conn
	number int
	// What the handshake said.
	token string
}

func (p *peer) answer(frame object) {
	text, _ := json.Marshal(frame)
	// A test that is over closes it.
	_ = p.conn.Write(context.Background(), websocket.MessageText, text)
}

func (p *peer) ack(frame object, seq int) {
	p.answer(object{"type": "ack", "ref": frame["ref"], "messageId": frame["messageId"], "seq": seq, "epoch": "e"})
}

func (p *peer) refuse(frame object, code string, retryable bool) {
	p.answer(object{"type": "error", "ref": frame["ref"], "code": code, "retryable": retryable})
}

func (p *peer) subscribed(frame object, head int, epoch string) {
	p.answer(object{
		"type": "subscribed", "ref": frame["ref"], "roomId": frame["roomId"], "epoch": epoch, "oldest": 1, "head": head,
	})
}

func (p *peer) message(room string, seq int) {
	p.answer(object{"type": "message", "roomId": room, "messageId": "m", "userId": "u", "message": "text", "seq": seq})
}

// serving makes a client of a server whose socket answers each frame with onFrame.
func serving(t *testing.T, options Options, onFrame func(frame object, p *peer)) *Client {
	var connections atomic.Int32
	return clientOf(t, options, func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		conn.SetReadLimit(frameBytesMax)
		p := &peer{t, conn, int(connections.Add(1)), r.Header.Get("Authorization")}
		for {
			_, text, err := conn.Read(r.Context())
			if err != nil {
				return
			}
			var frame object
			if err := json.Unmarshal(text, &frame); err != nil {
				t.Error(err)
			}
			onFrame(frame, p)
		}
	})
}
