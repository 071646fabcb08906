package hubbub

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"time"
)

// Message of a room.
type Message struct {
	MessageID string `json:"messageId"`
	RoomID    string `json:"roomId"`
	UserID    string `json:"userId"`
	Username  string `json:"username,omitempty"`
	// The text.
	Message     string `json:"message"`
	MessageType string `json:"messageType"`
	// The sender's clock.
	Timestamp string `json:"timestamp"`
	// The position in the room.
	Seq uint64 `json:"seq"`
	// The server's clock; never decreases within a room.
	ReceivedAt string `json:"receivedAt"`
}

// Receipt says that a message is on disk. With a broker as the server's log only the id is known.
type Receipt struct {
	MessageID  string `json:"messageId"`
	Seq        uint64 `json:"seq"`
	Epoch      string `json:"epoch"`
	ReceivedAt string `json:"receivedAt"`
	Duplicate  bool   `json:"duplicate"`
}

// Event of a subscription: Ready, Message or Reset.
type Event interface{ isEvent() }

// Ready says that the server has accepted the subscription: at every connection. Head tells how far missed messages go.
type Ready struct {
	Epoch        string
	Oldest, Head uint64
}

// Reset says: forget what you hold. With HistoryReplaced a backup was restored; otherwise retention deleted something.
type Reset struct {
	Epoch           string
	Oldest, Head    uint64
	HistoryReplaced bool
}

func (Ready) isEvent()   {}
func (Message) isEvent() {}
func (Reset) isEvent()   {}

// Position is where to continue; both belong together.
type Position struct {
	Epoch string
	Seq   uint64
}

// Room to send to and to follow.
type Room struct {
	name   string
	client *Client
}

// SendOptions of a message. What is empty is left out, but for the id, which is made, and the timestamp, which is now.
type SendOptions struct {
	MessageID, UserID, Username, MessageType, Timestamp string
}

// Send returns once the message is on disk. Until then it is sent again, with the same id. Messages of one room are
// stored in the order of these calls. When ctx ends, the message is given up; it may be stored nevertheless.
func (r *Room) Send(ctx context.Context, text string, options ...SendOptions) (Receipt, error) {
	wait, err := r.SendLater(text, options...)
	if err != nil {
		return Receipt{}, err
	}
	return wait(ctx)
}

// SendLater returns as soon as the message has its place among those of the room, so that many can be on the way. The
// returned function, which must be called, waits for the receipt as Send does.
func (r *Room) SendLater(text string, options ...SendOptions) (func(context.Context) (Receipt, error), error) {
	var given SendOptions
	if len(options) > 0 {
		given = options[0]
	}
	orDefault(&given.MessageID, MakeID())
	orDefault(&given.MessageType, "TEXT")
	orDefault(&given.Timestamp, time.Now().UTC().Format("2006-01-02T15:04:05.000Z"))
	orDefault(&given.UserID, r.client.http.options.User)
	orDefault(&given.Username, r.client.http.options.Username)
	socket, err := r.client.connected()
	if err != nil {
		return nil, err
	}
	return socket.send(sendFrame{
		Type: "send", RoomID: r.name, UserID: given.UserID, Username: given.Username, Message: text,
		MessageID: given.MessageID, MessageType: given.MessageType, Timestamp: given.Timestamp,
	})
}

// Start of a subscription: FromNow, FromLast or After.
type Start struct {
	after *uint64
	epoch string
	last  int
}

// FromNow begins with the next message.
func FromNow() Start { return Start{} }

// FromLast begins with so many of the newest messages.
func FromLast(count int) Start { return Start{last: count} }

// After begins behind the last seq you have (0 = with the oldest), known from this epoch ("" = unknown).
func After(seq uint64, epoch string) Start { return Start{after: &seq, epoch: epoch} }

// SubscribeOptions of a subscription.
type SubscribeOptions struct {
	// After a reset, go on with the next message instead of the oldest.
	LiveOnReset bool
	// Most events that wait to be taken (1,000).
	BufferMax int
}

// Subscribe follows the room. Take its events with Next or Events.
func (r *Room) Subscribe(start Start, options ...SubscribeOptions) (*Subscription, error) {
	var given SubscribeOptions
	if len(options) > 0 {
		given = options[0]
	}
	orDefault(&given.BufferMax, 1_000)
	socket, err := r.client.connected()
	if err != nil {
		return nil, err
	}
	s := &Subscription{
		room: r.name, socket: socket, options: given, last: start.last, changed: make(chan struct{}, 1),
		cursor: cursor{epoch: start.epoch, seq: start.after},
	}
	s.position = s.cursor.position()
	if err := socket.follow(s); err != nil {
		return nil, err
	}
	return s, nil
}

// HistoryQuery selects a page; what is zero is left out.
type HistoryQuery struct {
	After, Before *uint64
	Limit         int
	Epoch         string
}

// History is a page, newest last. Next is the After or Before of the next one, nil at the end.
type History struct {
	Messages     []Message `json:"messages"`
	Epoch        string    `json:"epoch"`
	Oldest, Head uint64
	Next         *uint64 `json:"next"`
}

// History reads a page.
func (r *Room) History(ctx context.Context, query HistoryQuery) (*History, error) {
	values := url.Values{}
	if query.After != nil {
		values.Set("after", fmt.Sprint(*query.After))
	}
	if query.Before != nil {
		values.Set("before", fmt.Sprint(*query.Before))
	}
	if query.Limit > 0 {
		values.Set("limit", fmt.Sprint(query.Limit))
	}
	if query.Epoch != "" {
		values.Set("epoch", query.Epoch)
	}
	page := &History{}
	path := "/v1/rooms/" + segmentOf(r.name) + "/messages?" + values.Encode()
	return page, r.client.http.json(ctx, "messages", "GET", path, nil, page, 0)
}

type cursor struct {
	epoch string
	// nil before anything is known.
	seq *uint64
}

func (c cursor) position() Position {
	if c.seq == nil {
		return Position{Epoch: c.epoch}
	}
	return Position{c.epoch, *c.seq}
}

// Subscription has events of one room. Those nobody has taken yet are bounded: at BufferMax it pauses, and it continues
// behind the last one when half of them are taken. The socket's lock guards it.
type Subscription struct {
	room    string
	socket  *socket
	options SubscribeOptions
	last    int
	ref     string
	// Where the server is to continue, and where the reader is.
	cursor   cursor
	position Position
	// Before the first of the `last` messages, once it is known. Goes out until a message came; filters nothing, since
	// positions may have gaps.
	resume *uint64
	// Whether `subscribed` came on this connection. What comes before belongs to an older subscription.
	isAnnounced bool
	isPaused    bool
	isOver      bool
	err         error
	events      []buffered
	changed     chan struct{}
}

type buffered struct {
	event    Event
	position Position
}

// ErrEnded is what Next returns after Close, and after the error that ended a subscription.
var ErrEnded = &Error{Code: "ended", Detail: "the subscription is over"}

// Next event. It returns the error with which the server ended the subscription, then ErrEnded.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	for {
		event, err := s.take()
		if event != nil || err != nil {
			return event, err
		}
		select {
		case <-ctx.Done():
			return nil, s.socket.because(ctx.Err())
		case <-s.changed:
		}
	}
}

// Events until ctx or the subscription ends; an error is the last one.
func (s *Subscription) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			event, err := s.Next(ctx)
			if err == ErrEnded || !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// Position is behind the last event that was taken: keep it to continue there with another client. Until an event was
// taken it is where the subscription began, and zero if that is FromNow or FromLast: After would then begin with the oldest.
func (s *Subscription) Position() Position {
	s.socket.mu.Lock()
	defer s.socket.mu.Unlock()
	return s.position
}

// Close ends the subscription. What is buffered can still be taken.
func (s *Subscription) Close() { s.socket.unfollow(s) }

func (s *Subscription) take() (Event, error) {
	s.socket.mu.Lock()
	defer s.socket.mu.Unlock()
	if len(s.events) == 0 {
		if s.err != nil {
			err := s.err
			s.err = nil
			return nil, err
		}
		if s.isOver {
			s.wake()
			return nil, ErrEnded
		}
		return nil, nil
	}
	first := s.events[0]
	s.events = s.events[1:]
	s.position = first.position
	if len(s.events) > 0 {
		// Somebody else may wait, too.
		s.wake()
	}
	if s.isPaused && !s.isOver && len(s.events) <= s.options.BufferMax/2 {
		s.isPaused = false
		s.socket.subscribe(s)
	}
	return first.event, nil
}

func (s *Subscription) frame() map[string]any {
	frame := map[string]any{"type": "subscribe", "ref": s.ref, "roomId": s.room, "onReset": "replay"}
	if s.options.LiveOnReset {
		frame["onReset"] = "live"
	}
	known := s.known()
	switch {
	case known.seq != nil:
		frame["after"] = *known.seq
		if known.epoch != "" {
			frame["epoch"] = known.epoch
		}
	case s.last > 0:
		frame["last"] = s.last
	}
	return frame
}

func (s *Subscription) known() cursor {
	if s.cursor.seq != nil {
		return s.cursor
	}
	return cursor{s.cursor.epoch, s.resume}
}

func (s *Subscription) onSubscribed(at *position) {
	s.isAnnounced = true
	// Without `last`, the first message is the next after the head.
	if s.cursor.seq == nil && (s.last == 0 || at.Head == 0) {
		s.cursor.seq = &at.Head
	} else if s.cursor.seq == nil && s.resume == nil {
		// Asking for the newest ones again would leave out what came meanwhile.
		first := at.Head - min(at.Head, uint64(s.last))
		first = max(first, max(at.Oldest, 1)-1)
		s.resume = &first
	}
	// A cursor of another epoch is answered by a `reset` next, which carries the new epoch.
	if known := s.known(); s.cursor.epoch == "" || known.seq == nil || *known.seq == 0 {
		s.cursor.epoch = at.Epoch
	}
	s.push(Ready{at.Epoch, at.Oldest, at.Head})
}

func (s *Subscription) onReset(at *position) {
	wasReplaced := s.cursor.epoch != "" && s.cursor.epoch != at.Epoch
	// 0 is never answered with another reset.
	seq := uint64(0)
	if s.options.LiveOnReset {
		seq = at.Head
	}
	s.cursor = cursor{at.Epoch, &seq}
	s.push(Reset{at.Epoch, at.Oldest, at.Head, wasReplaced})
}

// onMessage returns whether the buffer is full now.
func (s *Subscription) onMessage(message Message) bool {
	if !s.isAnnounced || (s.cursor.seq != nil && message.Seq <= *s.cursor.seq) {
		return false
	}
	s.cursor.seq = &message.Seq
	s.push(message)
	return len(s.events) >= s.options.BufferMax
}

func (s *Subscription) push(event Event) {
	if _, isReady := event.(Ready); isReady && len(s.events) > 0 {
		// A server that comes and goes fills nothing.
		if _, wasReady := s.events[len(s.events)-1].event.(Ready); wasReady {
			s.events = s.events[:len(s.events)-1]
		}
	}
	s.events = append(s.events, buffered{event, s.known().position()})
	s.wake()
}

func (s *Subscription) end(err error) {
	if !s.isOver {
		s.isOver, s.err = true, err
		s.wake()
	}
}

func (s *Subscription) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}
