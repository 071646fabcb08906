package hubbub

import (
	"fmt"
	"slices"
	"time"
)

// unansweredMax is the most unanswered frames over all rooms; the server stops reading a socket at 1,024.
const unansweredMax = 256

// outgoing is a message without a receipt.
type outgoing struct {
	frame sendFrame
	ref   string
	// Of its last frame.
	asked *question
	// Gets one result.
	done chan sent
	// Given up on the way: it keeps its place until its answer comes, and does not go out again.
	isGivenUp bool
}

type sent struct {
	receipt Receipt
	err     error
}

type sendFrame struct {
	Type        string `json:"type"`
	Ref         string `json:"ref"`
	RoomID      string `json:"roomId"`
	UserID      string `json:"userId,omitempty"`
	Username    string `json:"username,omitempty"`
	Message     string `json:"message"`
	MessageID   string `json:"messageId"`
	MessageType string `json:"messageType"`
	Timestamp   string `json:"timestamp,omitempty"`
}

// lane has the messages of one room, oldest first. The first `sent` of them are on the way.
type lane struct {
	waiting []*outgoing
	sent    int
	// Set after a refusal: nothing is sent until all answers have come and the pause is over.
	isHeld   bool
	timer    *time.Timer
	failures int
	// Most messages on the way: one after a refusal, doubled by each receipt, so that a busy server is asked gently.
	window int
}

// lanes has what has no receipt yet, room by room, in order. The socket's lock guards it.
type lanes struct {
	socket *socket
	rooms  map[string]*lane
	// In the order of sending.
	unanswered []*outgoing
	waiting    int
	refs       int
	// A ping came, and may precede a refusal: what goes out behind its pong must wait for the next answer.
	isGated bool
}

func (l *lanes) send(frame sendFrame) (*outgoing, error) {
	if l.waiting >= l.socket.options().WaitingMax {
		return nil, &Error{Code: "queue_full", Detail: fmt.Sprintf("%d messages wait already", l.waiting), Retryable: true}
	}
	l.waiting++
	room := l.rooms[frame.RoomID]
	if room == nil {
		room = &lane{window: l.socket.options().InFlightMax}
		l.rooms[frame.RoomID] = room
	}
	o := &outgoing{frame: frame, done: make(chan sent, 1)}
	room.waiting = append(room.waiting, o)
	l.flush(room)
	return o, nil
}

// cancel gives a message up. What is on the way may be stored nevertheless.
func (l *lanes) cancel(o *outgoing) {
	if !slices.Contains(l.unanswered, o) {
		l.remove(o)
	} else if !o.isGivenUp {
		// Its answer is still to come: until then it counts among what is on the way, and a ping's gate stays.
		o.isGivenUp = true
		l.waiting--
	}
}

func (l *lanes) dropGivenUp(room *lane) {
	for _, o := range slices.Clone(room.waiting) {
		if o.isGivenUp {
			l.remove(o)
		}
	}
}

func (l *lanes) failAll(err error) {
	for _, room := range l.rooms {
		for _, o := range slices.Clone(room.waiting) {
			l.remove(o)
			o.done <- sent{err: err}
		}
	}
}

// oldest is the oldest frame without an answer, nil if there is none.
func (l *lanes) oldest() *question {
	if len(l.unanswered) == 0 {
		return nil
	}
	return l.unanswered[0].asked
}

// onLost lets everything unanswered be sent again, but for what made a frame too big.
func (l *lanes) onLost(wasTooBig bool) {
	var largest *outgoing
	for _, o := range l.unanswered {
		if largest == nil || len(o.frame.Message) > len(largest.frame.Message) {
			largest = o
		}
	}
	l.unanswered, l.isGated = nil, false
	for _, room := range l.rooms {
		room.sent = 0
		room.release()
		l.dropGivenUp(room)
	}
	if wasTooBig && largest != nil {
		l.remove(largest)
		largest.done <- sent{err: &Error{Code: "too_large", Detail: "the server takes no frame as big as this"}}
	}
}

func (l *lanes) onPing() { l.isGated = len(l.unanswered) > 0 }

func (l *lanes) onAck(ref string, receipt *Receipt) {
	o := l.answered(ref)
	if o == nil {
		return
	}
	l.remove(o)
	o.done <- sent{receipt: *receipt}
	if room := l.rooms[o.frame.RoomID]; room != nil && !room.isHeld {
		room.failures = 0
		room.window = min(2*room.window, l.socket.options().InFlightMax)
	}
	l.onAnswer(o.frame.RoomID)
}

// onRefused returns whether the error answers one of these.
func (l *lanes) onRefused(ref string, problem *Error) bool {
	o := l.answered(ref)
	if o == nil {
		return false
	}
	room := l.rooms[o.frame.RoomID]
	if problem.Retryable && room != nil {
		room.isHeld, room.window = true, 1
	} else {
		l.remove(o)
		o.done <- sent{err: problem}
	}
	l.onAnswer(o.frame.RoomID)
	return true
}

func (l *lanes) answered(ref string) *outgoing {
	index := slices.IndexFunc(l.unanswered, func(o *outgoing) bool { return o.ref == ref })
	if index < 0 {
		return nil
	}
	o := l.unanswered[index]
	l.unanswered = slices.Delete(l.unanswered, index, index+1)
	return o
}

func (l *lanes) onAnswer(name string) {
	l.isGated = false
	l.goOn(name)
	l.flushAll()
}

// goOn waits after a refusal for all answers and then for the pause, to keep the order.
func (l *lanes) goOn(name string) {
	room := l.rooms[name]
	if room == nil || !room.isHeld || room.timer != nil {
		return
	}
	for _, o := range room.waiting[:room.sent] {
		if slices.Contains(l.unanswered, o) {
			return
		}
	}
	room.sent = 0
	pause := l.socket.options().pause(room.failures, 0, random())
	room.failures++
	var timer *time.Timer
	timer = time.AfterFunc(pause, func() {
		l.socket.mu.Lock()
		defer l.socket.mu.Unlock()
		// A lost connection has released it already.
		if room.timer == timer {
			room.release()
			l.flush(room)
		}
	})
	room.timer = timer
	l.dropGivenUp(room)
}

func (r *lane) release() {
	r.isHeld = false
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = nil
}

// flushAll begins elsewhere each time, as walks through a map do: no room is always behind the busy ones.
func (l *lanes) flushAll() {
	for _, room := range l.rooms {
		l.flush(room)
	}
}

func (l *lanes) flush(room *lane) {
	for room.sent < min(len(room.waiting), room.window) && len(l.unanswered) < unansweredMax &&
		l.socket.isOpen && !l.isGated && !room.isHeld {
		o := room.waiting[room.sent]
		room.sent++
		l.refs++
		o.ref = fmt.Sprintf("m%d", l.refs)
		o.asked = &question{askedAt: time.Now()}
		l.unanswered = append(l.unanswered, o)
		frame := o.frame
		frame.Ref = o.ref
		l.socket.ask(frame, o.asked)
	}
}

func (l *lanes) remove(o *outgoing) {
	room := l.rooms[o.frame.RoomID]
	if room == nil {
		return
	}
	index := slices.Index(room.waiting, o)
	if index < 0 {
		return
	}
	room.waiting = slices.Delete(room.waiting, index, index+1)
	if !o.isGivenUp {
		l.waiting--
	}
	if index < room.sent {
		room.sent--
	}
	if len(room.waiting) == 0 {
		room.release()
		delete(l.rooms, o.frame.RoomID)
	}
}
