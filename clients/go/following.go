package hubbub

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// serverFrame is what every frame of the server may have.
type serverFrame struct {
	Type   string          `json:"type"`
	Ref    json.RawMessage `json:"ref"`
	RoomID string          `json:"roomId"`
	text   []byte
}

// members of a frame of a certain type; what does not fit stays zero.
func members[T any](f *serverFrame) *T {
	found := new(T)
	_ = json.Unmarshal(f.text, found)
	return found
}

// position that `subscribed` and `reset` carry.
type position struct {
	Epoch  string `json:"epoch"`
	Oldest uint64 `json:"oldest"`
	Head   uint64 `json:"head"`
}

func (f *serverFrame) ref() string {
	var ref string
	if json.Unmarshal(f.Ref, &ref) != nil {
		return ""
	}
	return ref
}

// ---- Following --------------------------------------------------------------------------------------------------------

func (s *socket) follow(follower *Subscription) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOver {
		return errOver()
	}
	if s.followers[follower.room] != nil {
		return &Error{Code: "invalid", Detail: follower.room + " is subscribed already"}
	}
	s.followers[follower.room] = follower
	s.subscribe(follower)
	return nil
}

func (s *socket) unfollow(follower *Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followers[follower.room] == follower {
		delete(s.followers, follower.room)
		if !follower.isPaused {
			s.leave(follower.room)
		}
	}
	follower.end(nil)
}

func (s *socket) subscribe(follower *Subscription) {
	if _, isLeaving := s.leaving[follower.room]; isLeaving || follower.isPaused || !s.isOpen {
		return
	}
	follower.ref = s.nextRef("s")
	s.transmitJSON(follower.frame())
}

func (s *socket) leave(room string) {
	if s.isOpen {
		s.leaving[room] = s.nextRef("u")
		s.transmitJSON(map[string]any{"type": "unsubscribe", "ref": s.leaving[room], "roomId": room})
	}
}

func (s *socket) onLeft(room string) {
	delete(s.leaving, room)
	if follower := s.followers[room]; follower != nil {
		s.subscribe(follower)
	}
}

func (s *socket) nextRef(kind string) string {
	s.refs++
	return fmt.Sprintf("%s%d", kind, s.refs)
}

// ---- Sending ----------------------------------------------------------------------------------------------------------

func (s *socket) send(frame sendFrame) (func(context.Context) (Receipt, error), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOver {
		return nil, errOver()
	}
	o, err := s.lanes.send(frame)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Receipt, error) {
		select {
		case result := <-o.done:
			return result.receipt, result.err
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lanes.cancel(o)
			return Receipt{}, s.because(ctx.Err())
		}
	}, nil
}

func errOver() *Error {
	return &Error{Code: "closed", Detail: "the client was closed, or the server refused it"}
}

// ---- Frames -----------------------------------------------------------------------------------------------------------

func (s *socket) onFrame(text []byte) {
	frame := &serverFrame{text: text}
	err := json.Unmarshal(text, frame)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return
	}
	follower := s.followers[frame.RoomID]
	switch frame.Type {
	case "ack":
		s.attempt = 0
		s.lanes.onAck(frame.ref(), members[Receipt](frame))
	case "error":
		s.onError(frame, members[Error](frame))
	case "unsubscribed":
		s.onLeft(frame.RoomID)
	case "subscribed":
		if follower != nil && follower.ref == frame.ref() {
			s.attempt = 0
			follower.onSubscribed(members[position](frame))
		}
	case "reset":
		// Before, it is an older subscription's.
		if follower != nil && follower.isAnnounced {
			follower.onReset(members[position](frame))
		}
	case "message":
		if follower != nil {
			s.onMessage(follower, members[Message](frame))
		}
	}
}

func (s *socket) onMessage(follower *Subscription, message *Message) {
	if follower.onMessage(*message) {
		// Its reader is slow: it goes on behind what is buffered.
		follower.isPaused, follower.isAnnounced = true, false
		s.leave(follower.room)
	}
}

func (s *socket) onError(frame *serverFrame, problem *Error) {
	ref := frame.ref()
	if s.lanes.onRefused(ref, problem) {
		return
	}
	if ref == "" {
		// The subscription is over. Who has asked for none yet waits for an older one to end, which this concerns.
		if follower := s.followers[frame.RoomID]; follower != nil && follower.ref != "" {
			s.drop(follower, problem)
		}
		return
	}
	for _, follower := range s.followers {
		if follower.ref != ref {
			continue
		}
		if !problem.Retryable {
			s.drop(follower, problem)
			return
		}
		// Another connection may have subscribed by then, with another ref.
		s.later(func() {
			if s.followers[follower.room] == follower && follower.ref == ref {
				s.subscribe(follower)
			}
		})
		return
	}
	for room, left := range s.leaving {
		if left != ref {
			continue
		}
		if !problem.Retryable {
			s.onLeft(room)
			return
		}
		s.later(func() {
			if s.leaving[room] == ref {
				s.leave(room)
			}
		})
		return
	}
}

func (s *socket) later(work func()) {
	time.AfterFunc(s.backoff(overloadAttempt), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		work()
	})
}

func (s *socket) drop(follower *Subscription, problem *Error) {
	delete(s.followers, follower.room)
	follower.end(problem)
}
