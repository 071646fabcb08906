package hubbub

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// eventBytesMax is the longest line of an event.
const eventBytesMax = 1 << 20

// KeyEvent of a watch: KeyReady, KeyChange or Reset.
type KeyEvent interface{ isKeyEvent() }

// KeyReady says that the changes behind Revision follow: at every connection.
type KeyReady struct {
	Epoch    string
	Revision uint64
}

// KeyChange of one key.
type KeyChange struct {
	// put, delete or expire.
	Type     string
	Key      string
	Revision uint64
}

func (KeyReady) isKeyEvent()  {}
func (KeyChange) isKeyEvent() {}
func (Reset) isKeyEvent()     {}

// Watch follows changes of keys with this prefix until ctx ends or the client is closed; an error is the last one. It
// begins as start says (After a revision, or FromNow). Events are read when they are asked for.
func (k *Keys) Watch(ctx context.Context, prefix string, start Start) iter.Seq2[KeyEvent, error] {
	return func(yield func(KeyEvent, error) bool) {
		ctx, cancel := k.http.until(ctx)
		defer cancel()
		w := &watch{http: k.http, prefix: prefix, cursor: cursor{start.epoch, start.after}, yield: yield}
		defer w.http.troubles.set(w, nil)
		w.run(ctx)
	}
}

type watch struct {
	http   *httpClient
	prefix string
	cursor cursor
	// With which the connection began.
	token string
	yield func(KeyEvent, error) bool
	// The caller wants no more.
	isOver  bool
	attempt int
}

func (w *watch) give(event KeyEvent, err error) {
	w.isOver = w.isOver || !w.yield(event, err) || err != nil
}

func (w *watch) run(ctx context.Context) {
	for !w.isOver && ctx.Err() == nil {
		err := w.connection(ctx)
		if w.isOver || ctx.Err() != nil {
			return
		}
		var retryAfter time.Duration
		var refused *Error
		if errors.As(err, &refused) {
			if refused.Code == "reset" || refused.Code == "compacted" {
				w.reset(refused)
				continue
			}
			if !refused.Retryable {
				w.give(nil, refused)
				return
			}
			retryAfter = refused.retryAfter
		} else {
			refused = unreachable(errLost)
		}
		w.http.troubles.set(w, refused)
		pause := w.http.options.pause(w.attempt, retryAfter, random())
		w.attempt++
		// The loop looks at ctx.
		_ = sleep(ctx, pause)
	}
}

func (w *watch) reset(at *Error) {
	wasReplaced := w.cursor.epoch != "" && w.cursor.epoch != at.Epoch
	w.cursor = cursor{at.Epoch, &at.Head}
	w.give(Reset{at.Epoch, at.Oldest, at.Head, wasReplaced}, nil)
}

func (w *watch) path() string {
	values := url.Values{"prefix": {escape(w.prefix)}}
	if w.cursor.seq != nil {
		values.Set("after", fmt.Sprint(*w.cursor.seq))
		if w.cursor.epoch != "" {
			values.Set("epoch", w.cursor.epoch)
		}
	}
	return "/v1/kv/watch?" + values.Encode()
}

// connection reads the events of one connection, and returns when it ends.
func (w *watch) connection(ctx context.Context) error {
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	defer w.http.dropIdle(own, ctx)
	options := &w.http.options
	silent := time.AfterFunc(options.AnswerMax, cancel)
	defer silent.Stop()
	w.token = w.http.currentToken()
	response, err := w.http.begin(own, request{
		method: "GET", path: w.path(), header: http.Header{"Accept": {"text/event-stream"}},
	}, w.token)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, eventBytesMax)
	fields := map[string]string{}
	for {
		silent.Reset(options.SilenceMax)
		if !lines.Scan() {
			break
		}
		// While the caller works on an event nobody reads: that is no silence.
		silent.Stop()
		if line := lines.Bytes(); len(line) > 0 {
			name, value, _ := bytes.Cut(line, []byte(": "))
			fields[string(name)] = string(value)
			continue
		}
		if err := w.onEvent(fields); err != nil || w.isOver {
			return err
		}
		clear(fields)
	}
	if err := lines.Err(); err != nil {
		return unreachable(err)
	}
	return nil
}

func (w *watch) onEvent(fields map[string]string) error {
	w.attempt = 0
	w.http.troubles.set(w, nil)
	if epoch, number, found := strings.Cut(fields["id"], ":"); found {
		if revision, err := strconv.ParseUint(number, 10, 64); err == nil {
			w.cursor = cursor{epoch, &revision}
		}
	}
	var data struct {
		Epoch    string `json:"epoch"`
		After    uint64 `json:"after"`
		Key      string `json:"key"`
		Revision uint64 `json:"revision"`
	}
	kind, text := fields["event"], []byte(fields["data"])
	if kind == "" {
		return nil
	}
	if err := json.Unmarshal(text, &data); err != nil {
		return unreachable(err)
	}
	switch kind {
	case "watching":
		w.cursor = cursor{data.Epoch, &data.After}
		w.give(KeyReady{data.Epoch, data.After}, nil)
	case "error":
		problem := &Error{}
		if err := json.Unmarshal(text, problem); err != nil {
			return unreachable(err)
		}
		return w.http.heedRenewal(problem, w.token)
	case "put", "delete", "expire":
		w.give(KeyChange{kind, unescape(data.Key), data.Revision}, nil)
	}
	return nil
}
