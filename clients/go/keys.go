package hubbub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// conflictsMax is the most attempts to change a key that others change all the time.
const conflictsMax = 100

// Keys with values. A key is any bytes.
type Keys struct{ http *httpClient }

// KeyValue is what a key has. A revision is greater than all before it.
type KeyValue struct {
	Value    []byte
	Revision uint64
}

// PutOptions of a value.
type PutOptions struct {
	// Only if the key still has this revision (0 = does not exist); nil = whatever it has.
	Revision *uint64
	// How long it lives; 0 = until it is deleted.
	TTL time.Duration
}

// OnlyIf is a condition on the revision of a key; 0 = it does not exist.
func OnlyIf(revision uint64) *uint64 { return &revision }

func escape(key string) string { return strings.ReplaceAll(url.QueryEscape(key), "+", "%20") }

func pathOf(key string) (string, error) {
	segments := strings.Split(key, "/")
	if slices.Contains(segments, ".") || slices.Contains(segments, "..") {
		fault := Fault{"key", "must have no segment . or .., use POST /v1/kv"}
		return "", &Error{Code: "invalid", Errors: []Fault{fault}}
	}
	for i, segment := range segments {
		segments[i] = escape(segment)
	}
	return "/kv/" + strings.Join(segments, "/"), nil
}

func setCondition(header http.Header, revision uint64) {
	if revision == 0 {
		header.Set("If-None-Match", "*")
	} else {
		header.Set("If-Match", fmt.Sprintf("%q", fmt.Sprint(revision)))
	}
}

// A proxy that compresses what it passes on makes the tag a weak one.
var entityTag = regexp.MustCompile(`^(?:W/)?"([0-9]+)"$`)

func revisionOf(header http.Header) (uint64, error) {
	tag := header.Get("ETag")
	if found := entityTag.FindStringSubmatch(tag); found != nil {
		if revision, err := strconv.ParseUint(found[1], 10, 64); err == nil {
			return revision, nil
		}
	}
	return 0, strange(fmt.Sprintf("ETag: %q", tag))
}

// openIfRepeated: an answer that an earlier attempt of the same call may have caused says nothing.
func openIfRepeated(err error) error {
	var refused *Error
	if errors.As(err, &refused) && refused.IsOpen && refused.Code == "condition_failed" {
		open := *refused
		open.Code, open.Detail = "unconfirmed", "an attempt without an answer may have taken effect; read the key"
		return &open
	}
	return err
}

// Get returns nil if there is no such key.
func (k *Keys) Get(ctx context.Context, key string) (*KeyValue, error) {
	path, err := pathOf(key)
	if err != nil {
		return nil, err
	}
	found, err := k.http.call(ctx, request{method: "GET", path: path})
	if CodeOf(err) == "unknown_key" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	revision, err := revisionOf(found.header)
	if err != nil {
		return nil, err
	}
	return &KeyValue{found.body, revision}, nil
}

// Put stores a value and returns its revision. If a condition fails, the error is condition_failed. With or without one
// it is unconfirmed if an attempt without an answer may have stored it, and somebody else's value is there now.
func (k *Keys) Put(ctx context.Context, key string, value []byte, options ...PutOptions) (uint64, error) {
	var given PutOptions
	if len(options) > 0 {
		given = options[0]
	}
	if given.Revision != nil {
		return k.putIf(ctx, key, value, *given.Revision, given.TTL)
	}
	return asItIs(ctx, k, key, func(seen uint64) (uint64, error) {
		stored, err := k.putIf(ctx, key, value, seen, given.TTL)
		if CodeOf(err) != "unconfirmed" {
			return stored, err
		}
		if found, _ := k.Get(ctx, key); found != nil && bytes.Equal(found.Value, value) {
			return found.Revision, nil
		}
		return 0, err
	})
}

// asItIs changes a key whatever its revision is, but each attempt names the one it saw: an attempt that got no answer
// must not take effect behind later changes. But the absence of a key is true again after a delete.
func asItIs[T any](ctx context.Context, k *Keys, key string, change func(seen uint64) (T, error)) (T, error) {
	for attempt := 1; ; attempt++ {
		seen, err := k.revision(ctx, key)
		if err != nil {
			var none T
			return none, err
		}
		changed, err := change(seen)
		// Somebody else was faster.
		if CodeOf(err) != "condition_failed" || attempt == conflictsMax {
			return changed, err
		}
	}
}

// revision is 0 if there is no such key.
func (k *Keys) revision(ctx context.Context, key string) (uint64, error) {
	path, err := pathOf(key)
	if err != nil {
		return 0, err
	}
	found, err := k.http.call(ctx, request{method: "HEAD", path: path})
	var refused *Error
	// This answer has no body: its type tells the server's from a proxy's.
	if errors.As(err, &refused) && refused.Status == 404 &&
		strings.HasPrefix(refused.contentType, "application/problem+json") {
		return 0, nil
	}
	if refused != nil && refused.Status == 403 {
		refused.Detail = "the key is read first, as no revision was given: that needs the right to read it"
	}
	if err != nil {
		return 0, err
	}
	return revisionOf(found.header)
}

func (k *Keys) putIf(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (uint64, error) {
	path, err := pathOf(key)
	if err != nil {
		return 0, err
	}
	header := http.Header{}
	setCondition(header, revision)
	if ttl > 0 {
		header.Set("Hubbub-TTL", strconv.FormatFloat(ttl.Seconds(), 'f', -1, 64))
	}
	stored, err := k.http.call(ctx, request{method: "PUT", path: path, body: value, header: header})
	if err != nil {
		return 0, openIfRepeated(err)
	}
	if stored.status != http.StatusCreated && stored.status != http.StatusNoContent {
		return 0, strange("status " + strconv.Itoa(stored.status))
	}
	return revisionOf(stored.header)
}

// Delete returns whether there was such a key. revision as in PutOptions, errors as in Put.
func (k *Keys) Delete(ctx context.Context, key string, revision *uint64) (bool, error) {
	if revision != nil {
		return k.deleteIf(ctx, key, *revision)
	}
	return asItIs(ctx, k, key, func(seen uint64) (bool, error) {
		if seen == 0 {
			return false, nil
		}
		wasThere, err := k.deleteIf(ctx, key, seen)
		if CodeOf(err) != "unconfirmed" {
			return wasThere, err
		}
		if now, failed := k.revision(ctx, key); failed != nil || now != 0 {
			return false, err
		}
		return true, nil
	})
}

func (k *Keys) deleteIf(ctx context.Context, key string, revision uint64) (bool, error) {
	path, err := pathOf(key)
	if err != nil {
		return false, err
	}
	header := http.Header{}
	setCondition(header, revision)
	err = k.http.done(ctx, request{method: "DELETE", path: path, header: header})
	var refused *Error
	if errors.As(err, &refused) && refused.Code == "unknown_key" {
		if refused.IsOpen {
			return true, nil
		}
		failed := *refused
		failed.Code = "condition_failed"
		return false, &failed
	}
	return err == nil, openIfRepeated(err)
}

// KeyEntry of a list.
type KeyEntry struct {
	Key       string `json:"key"`
	Revision  uint64 `json:"revision"`
	Bytes     uint64 `json:"bytes"`
	ExpiresAt string `json:"expiresAt"`
}

// KeyPage has keys in order. Revision is where to watch from; Next is the after of the next page, nil at the end.
type KeyPage struct {
	Keys     []KeyEntry `json:"keys"`
	Revision uint64     `json:"revision"`
	Epoch    string     `json:"epoch"`
	Next     *string    `json:"next"`
}

// List reads a page of keys with this prefix, behind after ("" = from the first); limit 0 is the server's default.
func (k *Keys) List(ctx context.Context, prefix, after string, limit int) (*KeyPage, error) {
	values := url.Values{"prefix": {escape(prefix)}}
	if after != "" {
		values.Set("after", escape(after))
	}
	if limit > 0 {
		values.Set("limit", fmt.Sprint(limit))
	}
	page := &KeyPage{}
	if err := k.http.json(ctx, "keys", "GET", "/v1/kv?"+values.Encode(), nil, page, 0); err != nil {
		return nil, err
	}
	for i := range page.Keys {
		page.Keys[i].Key = unescape(page.Keys[i].Key)
	}
	if page.Next != nil {
		*page.Next = unescape(*page.Next)
	}
	return page, nil
}

func unescape(encoded string) string {
	key, err := url.PathUnescape(encoded)
	if err != nil {
		return encoded
	}
	return key
}
