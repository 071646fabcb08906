package hubbub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	closeGoingAway = 1001
	closeTooBig    = 1009
	// overloadAttempt is the attempt from which on the backoff counts after a refusal for overload.
	overloadAttempt = 3
	// givenWaitMax is the longest wait that a server may ask for.
	givenWaitMax = time.Minute
	// frameBytesMax is the longest frame that is read; the server's are smaller.
	frameBytesMax = 32 << 20
)

// finalCodes are close codes after which reconnecting is pointless; see docs/protocol.md.
var finalCodes = map[int]string{
	1002: "protocol", 1003: "protocol", 1007: "protocol", 1008: "protocol", 4400: "protocol",
	4401: "unauthorized", 4403: "forbidden",
}

// refusals are answers to the handshake, and the close codes that mean the same.
var refusals = map[int]int{401: 4401, 403: 4403, 429: 4429, 503: 1013}

// givenWait is the wait that a server which shuts down gives each client.
var givenWait = regexp.MustCompile(`reconnect after (\d+) ms`)

// socket is one connection after another for any number of rooms: it subscribes again and sends again what has no
// receipt yet. Nothing in it grows without bound: messages that wait, frames to write, events nobody has taken.
type socket struct {
	http   *httpClient
	cancel context.CancelFunc
	ctx    context.Context

	mu        sync.Mutex
	followers map[string]*Subscription
	// Rooms that are left on this connection, each with the ref of the frame. A new subscription waits for the answer.
	leaving map[string]string
	lanes   lanes
	refs    int
	attempt int
	heardAt time.Time
	// Zero if no probe is under way.
	probedAt time.Time
	isOpen   bool
	isOver   bool
	// Frames to write; bounded by the unanswered ones and the subscriptions.
	frames  [][]byte
	writing bool
	changed *sync.Cond
}

func newSocket(h *httpClient) *socket {
	s := &socket{http: h, followers: map[string]*Subscription{}, leaving: map[string]string{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.lanes = lanes{socket: s, rooms: map[string]*lane{}}
	s.changed = sync.NewCond(&s.mu)
	go s.run()
	return s
}

func (s *socket) options() *Options { return &s.http.options }

func (s *socket) backoff(attempt int) time.Duration { return s.options().pause(attempt, 0, random()) }

func (s *socket) close() {
	s.cancel()
	s.end(&Error{Code: "closed", Detail: "the client was closed"})
}

// end fails everything. A client that was closed ends its subscriptions without an error.
func (s *socket) end(err *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isOver, s.isOpen = true, false
	for room, follower := range s.followers {
		delete(s.followers, room)
		if err.Code == "closed" {
			follower.end(nil)
		} else {
			follower.end(err)
		}
	}
	s.lanes.failAll(err)
}

func (s *socket) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isOver
}

func (s *socket) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transmitToken(*s.http.token.Load())
}

func (s *socket) transmitToken(token string) {
	s.transmitJSON(map[string]any{"type": "auth", "ref": "auth", "token": token})
}

// ---- The connection ---------------------------------------------------------------------------------------------------

func (s *socket) run() {
	for s.ctx.Err() == nil {
		code, reason := s.connection()
		if s.ctx.Err() != nil {
			return
		}
		if final, isFinal := finalCodes[code]; isFinal {
			if reason == "" {
				reason = fmt.Sprintf("the connection was closed with %d", code)
			}
			s.end(&Error{Code: final, Detail: reason})
			return
		}
		if sleep(s.ctx, s.pauseAfter(code, reason)) != nil {
			return
		}
	}
}

func (s *socket) pauseAfter(code int, reason string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if code == 1013 || code == 4429 {
		s.attempt = max(s.attempt, overloadAttempt)
	}
	pause := s.backoff(s.attempt)
	s.attempt++
	if found := givenWait.FindStringSubmatch(reason); code == closeGoingAway && found != nil {
		// What a server that shuts down says to each client, so that they do not return all at once.
		if ms, err := strconv.Atoi(found[1]); err == nil {
			pause = min(time.Duration(ms)*time.Millisecond, givenWaitMax)
		}
	}
	return pause
}

// connection is one from its handshake to its end: the close code and its reason.
func (s *socket) connection() (int, string) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	token := *s.http.token.Load()
	conn, response, err := s.dial(ctx, token)
	if err != nil {
		if response == nil || refusals[response.StatusCode] == 0 {
			return 1006, ""
		}
		if response.StatusCode == http.StatusUnauthorized && *s.http.token.Load() != token {
			return 1006, "" // Another token was given meanwhile.
		}
		return refusals[response.StatusCode], "the server answered " + response.Status
	}
	defer conn.CloseNow()
	conn.SetReadLimit(frameBytesMax)
	s.onOpen(token)
	go s.write(ctx, cancel, conn)
	go s.watch(ctx, cancel)
	// Wakes the writer at the end.
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})()
	for {
		_, text, err := conn.Read(ctx)
		if err != nil {
			code, reason := 1006, ""
			var closed websocket.CloseError
			if errors.As(err, &closed) {
				code, reason = int(closed.Code), closed.Reason
			}
			s.onLost(code)
			return code, reason
		}
		s.onFrame(text)
	}
}

func (s *socket) dial(ctx context.Context, token string) (*websocket.Conn, *http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options().AnswerMax)
	defer cancel()
	header := http.Header{}
	s.http.setCaller(header, token)
	address := strings.Replace(s.http.url, "http", "ws", 1) + "/v1/ws"
	if user := s.options().User; user != "" {
		address += "?user=" + url.QueryEscape(user)
	}
	return websocket.Dial(ctx, address, &websocket.DialOptions{
		HTTPClient: s.options().HTTPClient, HTTPHeader: header, OnPingReceived: s.onPing,
	})
}

// onPing runs before the pong is written. Frames from before the ping must go out before it: the order after a refusal
// depends on that (docs/protocol.md).
func (s *socket) onPing(ctx context.Context, _ []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heardAt = time.Now()
	s.lanes.onPing()
	for s.isOpen && ctx.Err() == nil && (len(s.frames) > 0 || s.writing) {
		s.changed.Wait()
	}
	return true
}

// onOpen begins a connection; token is what the handshake said.
func (s *socket) onOpen(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isOpen = !s.isOver
	s.heardAt, s.probedAt = time.Now(), time.Time{}
	s.frames, s.writing = nil, false
	// Read behind isOpen: whoever renews it from now on finds an open connection.
	if renewed := *s.http.token.Load(); renewed != "" && renewed != token {
		s.transmitToken(renewed)
	}
	for _, follower := range s.followers {
		s.subscribe(follower)
	}
	s.lanes.flushAll()
}

func (s *socket) onLost(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isOpen = false
	s.frames = nil
	clear(s.leaving)
	for _, follower := range s.followers {
		follower.isAnnounced = false
	}
	s.lanes.onLost(code == closeTooBig)
	s.changed.Broadcast()
}

// transmit appends a frame to those to be written.
func (s *socket) transmit(text []byte) {
	if s.isOpen {
		s.frames = append(s.frames, text)
		s.changed.Broadcast()
	}
}

func (s *socket) transmitJSON(frame map[string]any) {
	// Maps of strings and numbers have no error.
	text, _ := json.Marshal(frame)
	s.transmit(text)
}

func (s *socket) write(ctx context.Context, cancel context.CancelFunc, conn *websocket.Conn) {
	defer cancel()
	for {
		s.mu.Lock()
		s.writing = false
		s.changed.Broadcast()
		for len(s.frames) == 0 && ctx.Err() == nil {
			s.changed.Wait()
		}
		if ctx.Err() != nil {
			s.mu.Unlock()
			return
		}
		text := s.frames[0]
		s.frames = s.frames[1:]
		s.writing = true
		s.mu.Unlock()
		if conn.Write(ctx, websocket.MessageText, text) != nil {
			return
		}
	}
}

// watch ends a connection that is dead: a silent one is probed, one without an answer is given up.
func (s *socket) watch(ctx context.Context, cancel context.CancelFunc) {
	defer cancel()
	every := min(s.options().SilenceMax, s.options().AnswerMax, 2*time.Second) / 2
	for sleep(ctx, every) == nil {
		if s.isDead() {
			return
		}
	}
}

func (s *socket) isDead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.probedAt.Before(s.heardAt) {
		s.probedAt = time.Time{}
	}
	asked, isAsked := s.lanes.oldestSentAt()
	if !s.probedAt.IsZero() && (!isAsked || s.probedAt.Before(asked)) {
		asked, isAsked = s.probedAt, true
	}
	if asked.Before(s.heardAt) {
		asked = s.heardAt
	}
	if isAsked && now.Sub(asked) > s.options().AnswerMax {
		return true
	}
	if s.probedAt.IsZero() && now.Sub(s.heardAt) > s.options().SilenceMax {
		s.probedAt = now
		s.transmitJSON(map[string]any{"type": "ping"})
	}
	return false
}
