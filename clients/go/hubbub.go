// Package hubbub is a client for a Hubbub server: rooms, queues and keys.
//
// The promise it keeps is in docs/protocol.md: what is acknowledged is on disk, is delivered once, in order, and whoever
// reconnects continues without a gap.
package hubbub

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"math"
	mathrand "math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Options of a client. What is zero has its default.
type Options struct {
	// A token or an API key.
	Token string
	// Who calls, where the server asks for no tokens.
	User string
	// Shown beside the user's messages.
	Username string
	// Pauses between attempts (300 ms, 10 s): doubled from the first to the longest, with a random part.
	BackoffFirst, BackoffMax time.Duration
	// Longest time for an answer (15 s).
	AnswerMax time.Duration
	// Longest silence of a connection before it is probed or given up (40 s).
	SilenceMax time.Duration
	// How long a request of queues and keys is repeated (60 s).
	Patience time.Duration
	// Most messages that wait for their receipt (1,000); further ones are refused with queue_full.
	WaitingMax int
	// Most messages of one room on the way at a time (32).
	InFlightMax int
	// Makes requests and connections. It must have no Timeout of its own. Its transport is used as it is; without one the client
	// has its own: HTTP/1.1, and no proxy, whatever the environment says. Redirects are errors in any case.
	HTTPClient *http.Client
}

func orDefault[T comparable](value *T, standard T) {
	var zero T
	if *value == zero {
		*value = standard
	}
}

func (o Options) withDefaults() Options {
	orDefault(&o.BackoffFirst, 300*time.Millisecond)
	orDefault(&o.BackoffMax, 10*time.Second)
	orDefault(&o.AnswerMax, 15*time.Second)
	orDefault(&o.SilenceMax, 40*time.Second)
	orDefault(&o.Patience, time.Minute)
	orDefault(&o.WaitingMax, 1_000)
	orDefault(&o.InFlightMax, 32)
	return o
}

// pause before another attempt, from 0: a random part of a growing time, and never less than the server asks for.
// Those who are told the same second do not come back at the same moment.
func (o *Options) pause(attempt int, retryAfter time.Duration, random float64) time.Duration {
	most := math.Min(float64(o.BackoffMax), float64(o.BackoffFirst)*math.Pow(2, math.Min(float64(attempt), 20)))
	return retryAfter + time.Duration(random*most)
}

// Client of a server's rooms, queues and keys. Safe for use by any number of goroutines.
type Client struct {
	// Keys with values.
	Keys *Keys

	http   *httpClient
	mu     sync.Mutex
	socket *socket
}

// New makes a client of the server at url, such as http://127.0.0.1:8080. It connects at the first use; if that is no URL, or
// the token is none, every use returns an error with code invalid.
func New(url string, options Options) *Client {
	h := newHTTPClient(strings.TrimRight(url, "/"), options.withDefaults())
	return &Client{Keys: &Keys{h}, http: h}
}

// Room of this name. Nothing is asked of the server yet.
func (c *Client) Room(name string) *Room { return &Room{name: name, client: c} }

// Queue of this name. Nothing is asked of the server yet.
func (c *Client) Queue(name string) *Queue { return newQueue(name, c.http) }

// SetToken goes on with another token of the same user, on the open socket, too. What the server ends or refuses because
// the old one has expired is begun again with this one.
func (c *Client) SetToken(token string) {
	c.http.token.Store(&token)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.socket != nil {
		c.socket.renew()
	}
}

// Close ends everything. Messages without a receipt, requests and Poll are refused with code closed; subscriptions and
// Watch end without an error.
func (c *Client) Close() {
	c.mu.Lock()
	s := c.socket
	c.http.close()
	c.mu.Unlock()
	if s != nil {
		s.end(errClosed())
	}
	if c.http.ownTransport != nil {
		c.http.ownTransport.CloseIdleConnections()
	}
}

// LastError is why the socket of the rooms, a Watch or a Poll is without a connection or an answer now: they try again and say
// nothing. It is nil while all is well, and at first.
func (c *Client) LastError() error {
	if last := c.http.troubles.last(); last != nil {
		return last
	}
	return nil
}

// connected is the socket; another one after the server refused the last for good, as with a token that ended.
func (c *Client) connected() (*socket, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.http.ctx.Err() != nil {
		return nil, errClosed()
	}
	if never := c.http.check(c.http.currentToken()); never != nil {
		return nil, never
	}
	if c.socket == nil || c.socket.hasEnded() {
		c.socket = newSocket(c.http)
	}
	return c.socket, nil
}

// MakeID returns a new unique id.
func MakeID() string {
	var bytes [16]byte
	// It never fails: see crypto/rand.
	_, _ = rand.Read(bytes[:])
	return hex.EncodeToString(bytes[:])
}

// sleep returns early with the context's error.
func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func random() float64 { return mathrand.Float64() }
