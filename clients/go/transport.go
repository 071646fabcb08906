package hubbub

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// newTransport makes one for a client of its own. It speaks HTTP/1.1 only: a request without an answer takes its connection with
// it, while HTTP/2 would send the next ones into the same dead one.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		// There is one server.
		MaxIdleConnsPerHost: 100,
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
}

// segmentOf a path that has this name. Whoever passes a path on may drop a plain . or .., as if it led somewhere.
func segmentOf(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}

// upgrade keeps the stream under the WebSocket: its library would write a pong at once, ahead of what is queued, or read
// nothing until that is written. And it tells of whole frames only.
type upgrade struct {
	transport       http.RoundTripper
	onRead, onWrite func()
	stream          io.Writer
}

func (u *upgrade) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := u.transport.RoundTrip(r)
	if err == nil {
		// It can be written to once the protocol was switched.
		if stream, isSwitched := response.Body.(io.ReadWriteCloser); isSwitched {
			told := &telling{stream, u}
			u.stream, response.Body = told, told
		}
	}
	return response, err
}

// telling says when bytes go through it.
type telling struct {
	io.ReadWriteCloser
	to *upgrade
}

func (t *telling) Read(p []byte) (int, error) {
	count, err := t.ReadWriteCloser.Read(p)
	if count > 0 {
		t.to.onRead()
	}
	return count, err
}

func (t *telling) Write(p []byte) (int, error) {
	count, err := t.ReadWriteCloser.Write(p)
	if count > 0 {
		t.to.onWrite()
	}
	return count, err
}

var errLost = errors.New("the connection was lost")

// because is what ended a wait, with the reason why what it waited for did not come, if that is known. With this context
// nothing is worth another try, whatever the reason is.
func because(ended error, cause *Error) error {
	var closed *Error
	if cause == nil || errors.As(ended, &closed) {
		return ended
	}
	last := *cause
	last.Retryable = false
	return fmt.Errorf("%w; the last attempt: %w", ended, &last)
}

// troubles are those of the socket, of watches and of Polls, the newest last.
type troubles struct {
	mu  sync.Mutex
	now []trouble
}

type trouble struct {
	who   any
	cause *Error
}

// set says what hinders it; nil: nothing any more.
func (t *troubles) set(who any, cause *Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, known := range t.now {
		if known.who == who {
			t.now = append(t.now[:i:i], t.now[i+1:]...)
			break
		}
	}
	if cause != nil {
		t.now = append(t.now, trouble{who, cause})
	}
}

func (t *troubles) of(who any) *Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, known := range t.now {
		if known.who == who {
			return known.cause
		}
	}
	return nil
}

func (t *troubles) last() *Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.now) == 0 {
		return nil
	}
	return t.now[len(t.now)-1].cause
}
