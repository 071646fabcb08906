package hubbub

import (
	"context"
	"fmt"
	"time"
)

const (
	// slowestBytes in a second are what the frame of a message is given at least. What is written may wait in the system's
	// buffer, where nobody sees it go.
	slowestBytes = 4 << 10
	// uploadMax is the longest time for that. The server gives a whole message no longer.
	uploadMax = 30 * time.Second
)

// question is a frame that waits for its answer.
type question struct {
	// When it was queued.
	askedAt time.Time
	// When it was written whole, zero before. An answer may be read before this is known.
	writtenAt time.Time
	bytes     int
}

// since when an answer can be expected. Until it is written whole, any bytes of what is written say that the connection lives.
func (q *question) since(wroteAt time.Time) time.Time {
	if !q.writtenAt.IsZero() {
		return q.writtenAt
	}
	if q.askedAt.After(wroteAt) {
		return q.askedAt
	}
	return wroteAt
}

// uploadTime is how much longer its answer may take, once it is written, for its length.
func (q *question) uploadTime() time.Duration {
	if q == nil || q.writtenAt.IsZero() {
		return 0
	}
	return min(time.Duration(q.bytes)*time.Second/slowestBytes, uploadMax)
}

// watch ends a connection that is dead: a silent one is probed, one without an answer is given up.
func (s *socket) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	every := min(s.options().SilenceMax, s.options().AnswerMax, 2*time.Second) / 2
	for sleep(ctx, every) == nil {
		if s.isDead() {
			cancel(fmt.Errorf("no answer for %v", s.options().AnswerMax))
			return
		}
	}
}

func (s *socket) isDead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.probe != nil && s.probe.askedAt.Before(s.heardAt) {
		s.probe = nil
	}
	oldest := s.lanes.oldest()
	// A probe waits behind the message.
	answerMax := s.options().AnswerMax + oldest.uploadTime()
	for _, q := range []*question{oldest, s.probe} {
		if q == nil {
			continue
		}
		since := q.since(s.wroteAt)
		if since.Before(s.heardAt) {
			since = s.heardAt
		}
		if now.Sub(since) > answerMax {
			return true
		}
	}
	if s.probe == nil && now.Sub(s.heardAt) > s.options().SilenceMax {
		s.probe = &question{askedAt: now}
		s.ask(map[string]any{"type": "ping"}, s.probe)
	}
	return false
}

func (s *socket) onRead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heardAt = time.Now()
}

func (s *socket) onWrite() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wroteAt = time.Now()
}
