package hubbub

import (
	"context"
	"fmt"
	"time"
)

// question is a frame that waits for its answer.
type question struct {
	// When it was queued, or written whole.
	at        time.Time
	isWritten bool
}

// since when an answer can be expected. Until it is written whole, any bytes of what is written say that the connection lives.
func (q *question) since(wroteAt time.Time) time.Time {
	if q.isWritten || q.at.After(wroteAt) {
		return q.at
	}
	return wroteAt
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
	if s.probe != nil && s.probe.at.Before(s.heardAt) {
		s.probe = nil
	}
	for _, q := range []*question{s.lanes.oldest(), s.probe} {
		if q == nil {
			continue
		}
		since := q.since(s.wroteAt)
		if since.Before(s.heardAt) {
			since = s.heardAt
		}
		if now.Sub(since) > s.options().AnswerMax {
			return true
		}
	}
	if s.probe == nil && now.Sub(s.heardAt) > s.options().SilenceMax {
		s.probe = &question{at: now}
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
