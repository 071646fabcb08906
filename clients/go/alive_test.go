package hubbub

// Connections that are slow, or dead, and how they are told apart.

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// slowConn takes and gives a little at a time, and nothing more once it is stuck.
type slowConn struct {
	net.Conn
	pause   time.Duration
	isStuck func() bool
	closed  chan struct{}
	once    sync.Once
}

const slowBytes = 4 << 10

func (c *slowConn) Read(p []byte) (int, error) {
	time.Sleep(c.pause)
	return c.Conn.Read(p[:min(len(p), slowBytes)])
}

func (c *slowConn) Write(p []byte) (int, error) {
	if c.isStuck() {
		<-c.closed
	}
	time.Sleep(c.pause)
	return c.Conn.Write(p)
}

func (c *slowConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// overSlow is a client whose connections are slow; the first one gets stuck after so many writes, 0 = never.
func overSlow(options Options, stuckAfter int32) Options {
	var connections atomic.Int32
	options.AnswerMax, options.SilenceMax = 300*time.Millisecond, 300*time.Millisecond
	options.HTTPClient = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			isFirst := connections.Add(1) == 1
			var writes atomic.Int32
			isStuck := func() bool { return stuckAfter > 0 && isFirst && writes.Add(1) > stuckAfter }
			return &slowConn{Conn: conn, pause: 20 * time.Millisecond, isStuck: isStuck, closed: make(chan struct{})}, err
		},
	}}
	return options
}

// slowText takes about 1.3 s one way.
var slowText = strings.Repeat("x", 64*slowBytes)

func TestAMessageThatIsSlowlyWrittenIsNoDeadConnection(t *testing.T) {
	var connections atomic.Int32
	room := serving(t, overSlow(quick(), 0), func(frame object, p *peer) {
		connections.Store(int32(p.number))
		if frame["type"] == "send" {
			p.ack(frame, 1)
		}
	}).Room("r")
	ctx, cancel := context.WithTimeout(within(t), 10*time.Second)
	defer cancel()
	if _, err := room.Send(ctx, slowText); err != nil || connections.Load() != 1 {
		t.Error(err, connections.Load())
	}
}

func TestAMessageThatIsSlowlyReadIsNoDeadConnection(t *testing.T) {
	client := serving(t, overSlow(quick(), 0), func(frame object, p *peer) {
		if frame["type"] == "subscribe" {
			p.subscribed(frame, 1, "e")
			p.answer(object{"type": "message", "roomId": "r", "message": slowText, "seq": 1})
		}
	})
	s, err := client.Room("r").Subscribe(After(0, ""))
	if err != nil {
		t.Fatal(err)
	}
	if found := take(t, s, 2); found != "ready 1" {
		t.Error(found)
	}
}

func TestAConnectionThatIsStuckInTheMiddleOfAMessageIsReplaced(t *testing.T) {
	// The handshake is one write.
	room := serving(t, overSlow(quick(), 9), func(frame object, p *peer) {
		if frame["type"] == "send" {
			p.ack(frame, p.number)
		}
	}).Room("r")
	receipt, err := room.Send(within(t), slowText)
	if err != nil || receipt.Seq != 2 {
		t.Error(receipt, err)
	}
}

func TestAnAnswerHasMoreTimeForTheLengthOfItsFrame(t *testing.T) {
	at := time.Now()
	for bytes, wanted := range map[int]time.Duration{0: 0, 8 << 10: 2 * time.Second, 1 << 30: uploadMax} {
		q := &question{askedAt: at, bytes: bytes}
		// Until it is written, what is written tells.
		if q.uploadTime() != 0 {
			t.Error(bytes, q.uploadTime())
		}
		q.writtenAt = at
		if q.uploadTime() != wanted {
			t.Error(bytes, q.uploadTime())
		}
	}
}

func TestAProbeThatIsAnsweredBeforeItsWritingIsKnownIsAnswered(t *testing.T) {
	options := quick().withDefaults()
	s := &socket{http: &httpClient{options: options}}
	s.lanes = lanes{socket: s}
	now := time.Now()
	asked, heard := now.Add(-2*options.AnswerMax), now.Add(-2*options.AnswerMax+time.Millisecond)
	s.probe = &question{askedAt: asked, writtenAt: heard.Add(time.Millisecond)}
	s.heardAt, s.wroteAt = heard, heard
	if s.isDead() || s.probe != nil {
		t.Error(s.probe)
	}
}

func TestWhatIsWrittenLaterIsNoAnswerToWhatCameBefore(t *testing.T) {
	var ended atomic.Bool
	options := quick()
	options.AnswerMax = 300 * time.Millisecond
	client := serving(t, options, func(frame object, p *peer) {
		if p.number > 1 {
			ended.Store(true)
			p.ack(frame, 1)
		}
	})
	var waits []func(context.Context) (Receipt, error)
	for i := 0; !ended.Load() && i < 100; i++ {
		wait, err := client.Room("r").SendLater("text")
		if err != nil {
			t.Fatal(err)
		}
		waits = append(waits, wait)
		time.Sleep(50 * time.Millisecond)
	}
	for _, wait := range waits {
		if _, err := wait(within(t)); err != nil {
			t.Error(err)
		}
	}
	// Else it would take until as much is written as may be without an answer: 32.
	if !ended.Load() || len(waits) > 24 {
		t.Error(ended.Load(), len(waits))
	}
}
