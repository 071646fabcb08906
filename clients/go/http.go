package hubbub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	neturl "net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// answerBytesMax is the longest answer that is read.
const answerBytesMax = 64 << 20

type httpClient struct {
	url string
	// The url is of no server.
	isNowhere bool
	options   Options
	token     atomic.Pointer[string]
	client    http.Client
	// nil if the user gave one.
	ownTransport *http.Transport
	troubles     troubles
	// Ends with the client.
	ctx   context.Context
	close context.CancelFunc
}

func newHTTPClient(url string, options Options) *httpClient {
	parsed, err := neturl.Parse(url)
	isNowhere := err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == ""
	h := &httpClient{url: url, isNowhere: isNowhere, options: options}
	h.token.Store(&options.Token)
	if options.HTTPClient != nil {
		h.client = *options.HTTPClient
	}
	// Followed, a redirect makes a read of a write, whose success would say nothing.
	h.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if h.client.Transport == nil {
		h.ownTransport = newTransport()
		h.client.Transport = h.ownTransport
	}
	h.ctx, h.close = context.WithCancel(context.Background())
	return h
}

// check returns why no request with this token can ever work: it would be tried again and again.
func (h *httpClient) check(token string) *Error {
	isPrintable := func(r rune) bool { return r >= '!' && r <= '~' }
	fault := Fault{"url", "must be a URL such as http://127.0.0.1:8080 or https://chat.example"}
	if !h.isNowhere {
		if strings.TrimFunc(token, isPrintable) == "" {
			return nil
		}
		fault = Fault{"token", "must be printable ASCII without spaces"}
	}
	return &Error{Code: "invalid", Errors: []Fault{fault}}
}

func (h *httpClient) currentToken() string { return *h.token.Load() }

type request struct {
	method, path string
	body         []byte
	header       http.Header
	// How long the server may wait before it answers.
	wait time.Duration
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (h *httpClient) setCaller(header http.Header, token string) {
	if h.options.User != "" {
		header.Set("Hubbub-User", h.options.User)
	}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
}

// until is a context that ends with the client, too.
func (h *httpClient) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(h.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// ended is why a context of until is over, nil before.
func (h *httpClient) ended(ctx context.Context) error {
	if h.ctx.Err() != nil {
		return errClosed()
	}
	return ctx.Err()
}

// heedRenewal lets what was refused for a token be repeated if there is another one by now.
func (h *httpClient) heedRenewal(refused *Error, token string) *Error {
	isUnauthorized := refused.Status == http.StatusUnauthorized || refused.Code == "unauthorized"
	if isUnauthorized && h.currentToken() != token {
		refused.Retryable = true
	}
	return refused
}

// begin returns the response of a success, whose body the caller closes.
func (h *httpClient) begin(ctx context.Context, r request, token string) (*http.Response, error) {
	if never := h.check(token); never != nil {
		return nil, never
	}
	asked, err := http.NewRequestWithContext(ctx, r.method, h.url+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, &Error{Code: "invalid", Detail: err.Error()}
	}
	for name, values := range r.header {
		asked.Header[name] = values
	}
	h.setCaller(asked.Header, token)
	response, err := h.client.Do(asked)
	if err != nil {
		return nil, unreachable(err)
	}
	if response.StatusCode >= 300 {
		defer response.Body.Close()
		return nil, h.heedRenewal(problemOf(response), token)
	}
	return response, nil
}

// dropIdle closes the idle connections if an attempt had no answer in its own time: they may well lead to the same dead
// server, and each would take the time of another attempt. Those of a transport that was given are its owner's.
func (h *httpClient) dropIdle(own, callers context.Context) {
	if own.Err() != nil && callers.Err() == nil && h.ownTransport != nil {
		h.ownTransport.CloseIdleConnections()
	}
}

// once makes one attempt.
func (h *httpClient) once(ctx context.Context, r request) (*answer, error) {
	own, cancel := context.WithTimeout(ctx, h.options.AnswerMax+r.wait)
	defer cancel()
	defer h.dropIdle(own, ctx)
	response, err := h.begin(own, r, h.currentToken())
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerBytesMax+1))
	if err != nil {
		return nil, unreachable(err)
	}
	if len(body) > answerBytesMax {
		return nil, strange(fmt.Sprintf("more than %d bytes", answerBytesMax))
	}
	return &answer{response.StatusCode, response.Header, body}, nil
}

// call repeats a request until there is a final answer, or the patience, ctx or the client ends.
func (h *httpClient) call(ctx context.Context, r request) (*answer, error) {
	ctx, cancel := h.until(ctx)
	defer cancel()
	end := time.Now().Add(h.options.Patience)
	isOpen := false
	var last *Error
	for attempt := 0; ; attempt++ {
		found, err := h.once(ctx, r)
		if err == nil {
			return found, nil
		}
		if ended := h.ended(ctx); ended != nil {
			return nil, because(ended, last)
		}
		var refused *Error
		if !errors.As(err, &refused) {
			return nil, err
		}
		pause := h.options.pause(attempt, refused.retryAfter, random())
		if !refused.Retryable || time.Now().Add(pause).After(end) {
			refused.IsOpen = isOpen
			return nil, refused
		}
		isOpen = isOpen || refused.leavesOpen()
		last = refused
		if sleep(ctx, pause) != nil {
			return nil, because(h.ended(ctx), last)
		}
	}
}

// json makes a request with a value, nil for none, and reads the answer, which has this member, into found, nil for none.
func (h *httpClient) json(
	ctx context.Context, member, method, path string, value, found any, wait time.Duration,
) error {
	r, err := withJSON(request{method: method, path: path, wait: wait}, value)
	if err != nil {
		return err
	}
	got, err := h.call(ctx, r)
	if err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(got.body, &members); err != nil {
		return strange(err.Error())
	}
	if members[member] == nil {
		return strange("no " + member)
	}
	if found == nil {
		return nil
	}
	if err := json.Unmarshal(got.body, found); err != nil {
		return strange(err.Error())
	}
	return nil
}

// done makes a request whose success has nothing to say, and the status for that.
func (h *httpClient) done(ctx context.Context, r request) error {
	got, err := h.call(ctx, r)
	if err == nil && got.status != http.StatusNoContent {
		return strange("status " + strconv.Itoa(got.status))
	}
	return err
}

// withJSON is the request with this value, nil for none.
func withJSON(r request, value any) (request, error) {
	if value == nil {
		return r, nil
	}
	body, err := json.Marshal(value)
	if err != nil {
		return r, &Error{Code: "invalid", Detail: err.Error()}
	}
	r.body, r.header = body, http.Header{"Content-Type": {"application/json"}}
	return r, nil
}
