package hubbub

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	// closeRefused is for answers to the handshake that blame the client.
	closeRefused = 4400
	// frameBytesMax is the longest frame that is read: 16 MiB of text with every byte escaped, and its envelope.
	frameBytesMax = 100 << 20
)

// finalCodes are close codes after which reconnecting is pointless; see docs/protocol.md.
var finalCodes = map[int]string{
	1002: "protocol", 1003: "protocol", 1007: "protocol", 1008: "protocol", 4400: "protocol",
	4401: "unauthorized", 4403: "forbidden",
}

// refusals are answers to the handshake, and the close codes that mean the same.
var refusals = map[int]int{401: 4401, 403: 4403, 408: 1006, 429: 4429, 503: 1013}

// givenWait is the wait that a server which shuts down gives each client.
var givenWait = regexp.MustCompile(`reconnect after (\d+) ms`)

// ending of a connection, or of a handshake.
type ending struct {
	code       int
	reason     string
	retryAfter time.Duration
	// What a refused handshake says.
	problem *Error
}

// queued frame: a text, or a whole pong as it goes out.
type queued struct {
	content []byte
	isPong  bool
	// nil if no answer is waited for.
	question *question
}

// socket is one connection after another for any number of rooms: it subscribes again and sends again what has no
// receipt yet. Nothing in it grows without bound: messages that wait, frames to write, events nobody has taken.
type socket struct {
	http *httpClient

	mu        sync.Mutex
	followers map[string]*Subscription
	// Rooms that are left on this connection, each with the ref of the frame. A new subscription waits for the answer.
	leaving map[string]string
	lanes   lanes
	refs    int
	attempt int
	// When bytes came last, and when some were written: a frame may take longer than its answer may.
	heardAt, wroteAt time.Time
	// nil if no probe is under way.
	probe  *question
	isOpen bool
	isOver bool
	// Frames to write; bounded by the unanswered ones, the subscriptions and the server's pings.
	frames  []queued
	changed *sync.Cond
}

func newSocket(h *httpClient) *socket {
	s := &socket{http: h, followers: map[string]*Subscription{}, leaving: map[string]string{}}
	s.lanes = lanes{socket: s, rooms: map[string]*lane{}}
	s.changed = sync.NewCond(&s.mu)
	go s.run()
	return s
}

func (s *socket) options() *Options { return &s.http.options }

func (s *socket) backoff(attempt int) time.Duration { return s.options().pause(attempt, 0, random()) }

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
	s.transmitToken(s.http.currentToken())
}

func (s *socket) transmitToken(token string) {
	s.transmitJSON(map[string]any{"type": "auth", "ref": "auth", "token": token})
}

// ---- The connection ---------------------------------------------------------------------------------------------------

func (s *socket) run() {
	for s.http.ctx.Err() == nil {
		token := s.http.currentToken()
		if never := s.http.check(token); never != nil {
			s.end(never)
			return
		}
		end := s.connection(token)
		if s.http.ctx.Err() != nil {
			return
		}
		orDefault(&end.reason, fmt.Sprintf("the connection was closed with %d", end.code))
		cause := end.problem
		orDefault(&cause, unreachable(errors.New(end.reason)))
		s.http.troubles.set(s.http, cause)
		if code, isFinal := finalCodes[end.code]; isFinal {
			orDefault(&end.problem, &Error{Code: code, Detail: end.reason})
			end.problem.Retryable = false
			// An `auth` with another token may have come too late, or was refused: a new handshake tells.
			refused := s.http.heedRenewal(end.problem, token)
			if !refused.Retryable {
				s.end(refused)
				return
			}
		}
		if sleep(s.http.ctx, s.pauseAfter(end)) != nil {
			return
		}
	}
}

func (s *socket) pauseAfter(end ending) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end.code == 1013 || end.code == 4429 {
		s.attempt = max(s.attempt, overloadAttempt)
	}
	pause := s.options().pause(s.attempt, min(end.retryAfter, givenWaitMax), random())
	s.attempt++
	if found := givenWait.FindStringSubmatch(end.reason); end.code == closeGoingAway && found != nil {
		// What a server that shuts down says to each client, so that they do not return all at once.
		if ms, err := strconv.Atoi(found[1]); err == nil {
			pause = min(time.Duration(ms)*time.Millisecond, givenWaitMax)
		}
	}
	return pause
}

// connection is one from its handshake, with this token, to its end.
func (s *socket) connection(token string) ending {
	ctx, cancel := context.WithCancelCause(s.http.ctx)
	defer cancel(nil)
	under := &upgrade{transport: s.http.client.Transport, onRead: s.onRead, onWrite: s.onWrite}
	conn, response, err := s.dial(ctx, token, under)
	if err != nil {
		if response == nil {
			return ending{code: 1006, reason: err.Error()}
		}
		problem := problemOf(response)
		code := refusals[response.StatusCode]
		if code == 0 && (problem.Status/100 == 4 || problem.Status/100 == 3 && !problem.Retryable) {
			code = closeRefused
		}
		orDefault(&code, 1006)
		if response.StatusCode < 300 {
			problem.Detail = err.Error()
		}
		return ending{code, "the server answered " + response.Status, problem.retryAfter, problem}
	}
	defer conn.CloseNow()
	conn.SetReadLimit(frameBytesMax)
	s.onOpen(token)
	go s.write(ctx, cancel, conn, under.stream)
	go s.watch(ctx, cancel)
	// Wakes the writer at the end.
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	for {
		_, text, err := conn.Read(ctx)
		if err != nil {
			end := ending{code: 1006, reason: err.Error()}
			if cause := context.Cause(ctx); cause != nil {
				end.reason = cause.Error()
			}
			var closed websocket.CloseError
			if errors.As(err, &closed) {
				end = ending{code: int(closed.Code), reason: closed.Reason}
			}
			s.onLost(end.code)
			return end
		}
		s.onFrame(text)
	}
}

func (s *socket) dial(ctx context.Context, token string, under *upgrade) (*websocket.Conn, *http.Response, error) {
	own, cancel := context.WithTimeout(ctx, s.options().AnswerMax)
	defer cancel()
	defer s.http.dropIdle(own, ctx)
	header := http.Header{}
	s.http.setCaller(header, token)
	address := strings.Replace(s.http.url, "http", "ws", 1) + "/v1/ws"
	if user := s.options().User; user != "" {
		address += "?user=" + url.QueryEscape(user)
	}
	client := s.http.client
	client.Transport = under
	return websocket.Dial(own, address, &websocket.DialOptions{
		HTTPClient: &client, HTTPHeader: header, OnPingReceived: s.onPing,
	})
}

// pongTo a ping, masked as all that a client writes.
func pongTo(payload []byte) []byte {
	pong := []byte{0x8a, 0x80 | byte(len(payload)), 0, 0, 0, 0}
	mask := pong[2:6]
	// It never fails: see crypto/rand.
	_, _ = rand.Read(mask)
	for i, b := range payload {
		pong = append(pong, b^mask[i%4])
	}
	return pong
}

// onPing queues the pong. Frames from before the ping must go out before it: the order after a refusal depends on that
// (docs/protocol.md). Its result says that the library writes none.
func (s *socket) onPing(_ context.Context, payload []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes.onPing()
	s.transmit(queued{content: pongTo(payload), isPong: true})
	return false
}

// onOpen begins a connection; token is what the handshake said.
func (s *socket) onOpen(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isOpen = !s.isOver
	s.http.troubles.set(s.http, nil)
	s.heardAt, s.probe = time.Now(), nil
	s.wroteAt = s.heardAt
	s.frames = nil
	// Read behind isOpen: whoever renews it from now on finds an open connection.
	if renewed := s.http.currentToken(); renewed != "" && renewed != token {
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
func (s *socket) transmit(f queued) {
	if s.isOpen {
		s.frames = append(s.frames, f)
		s.changed.Broadcast()
	}
}

func (s *socket) transmitJSON(value any) { s.ask(value, nil) }

func (s *socket) ask(value any, q *question) {
	// Structs and maps of strings and numbers have no error.
	text, _ := json.Marshal(value)
	if q != nil {
		q.bytes = len(text)
	}
	s.transmit(queued{content: text, question: q})
}

// write what is queued. The library has written a whole text when it returns, so that pongs go between them.
func (s *socket) write(
	ctx context.Context, cancel context.CancelCauseFunc, conn *websocket.Conn, stream io.Writer,
) {
	for {
		s.mu.Lock()
		for len(s.frames) == 0 && ctx.Err() == nil {
			s.changed.Wait()
		}
		if ctx.Err() != nil {
			s.mu.Unlock()
			return
		}
		next := s.frames[0]
		s.frames = s.frames[1:]
		s.mu.Unlock()
		var err error
		if next.isPong {
			_, err = stream.Write(next.content)
		} else {
			err = conn.Write(ctx, websocket.MessageText, next.content)
		}
		if err != nil {
			cancel(err)
			return
		}
		if next.question != nil {
			s.mu.Lock()
			next.question.writtenAt = time.Now()
			s.mu.Unlock()
		}
	}
}

// because is what ended a wait, with the reason why there is no connection, if there is none.
func (s *socket) because(ended error) error { return because(ended, s.http.troubles.of(s.http)) }
