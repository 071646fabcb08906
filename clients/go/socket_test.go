package hubbub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
)

func sendAll(t *testing.T, room *Room, texts ...string) []error {
	var waits []func(context.Context) (Receipt, error)
	failures := make([]error, len(texts))
	for i, text := range texts {
		wait, err := room.SendLater(text)
		if err != nil {
			failures[i] = err
			wait = func(context.Context) (Receipt, error) { return Receipt{}, err }
		}
		waits = append(waits, wait)
	}
	for i, wait := range waits {
		_, failures[i] = wait(within(t))
	}
	return failures
}

// take returns the next events: "ready", "reset" or a seq.
func take(t *testing.T, s *Subscription, count int) string {
	var found []string
	for range count {
		event, err := s.Next(within(t))
		if err != nil {
			t.Fatal(err)
		}
		switch e := event.(type) {
		case Ready:
			found = append(found, "ready")
		case Reset:
			found = append(found, "reset")
		case Message:
			found = append(found, fmt.Sprint(e.Seq))
		}
	}
	return strings.Join(found, " ")
}

func TestAfterAnOverloadTheRestGoesOutAgainInOrder(t *testing.T) {
	var asked, stored []string
	room := serving(t, quick(), func(frame object, p *peer) {
		text := frame["message"].(string)
		if asked = append(asked, text); len(asked) <= 3 {
			p.refuse(frame, "overloaded", true)
			return
		}
		stored = append(stored, text)
		p.ack(frame, len(stored))
	}).Room("r")
	if err := errors.Join(sendAll(t, room, "a", "b", "c")...); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(stored, []string{"a", "b", "c"}) {
		t.Error(stored)
	}
	// One is asked for after a refusal: what follows waits for its receipt.
	if len(asked) != 6 {
		t.Error(asked)
	}
}

func TestNothingOvertakesARefusalBehindItsPong(t *testing.T) {
	var mu sync.Mutex
	var texts []string
	overtaking, ponged := make(chan struct{}), make(chan struct{})
	room := serving(t, quick(), func(frame object, p *peer) {
		mu.Lock()
		texts = append(texts, frame["message"].(string))
		isFirst := len(texts) == 1
		mu.Unlock()
		if !isFirst {
			p.ack(frame, 1)
			return
		}
		go func() {
			// It returns when the pong came: the server takes frames again from here on.
			_ = p.conn.Ping(context.Background())
			close(ponged)
			<-overtaking
			p.refuse(frame, "overloaded", true)
		}()
	}).Room("r")
	one, err := room.SendLater("one")
	if err != nil {
		t.Fatal(err)
	}
	<-ponged
	two, err := room.SendLater("two")
	if err != nil {
		t.Fatal(err)
	}
	close(overtaking)
	for _, wait := range []func(context.Context) (Receipt, error){one, two} {
		if _, err := wait(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(texts, []string{"one", "one", "two"}) {
		t.Error(texts)
	}
}

func TestAPongGoesOutBehindWhatIsQueuedWhileFramesAreRead(t *testing.T) {
	const count = 256
	queued, goOn, ponged := make(chan struct{}), make(chan struct{}), make(chan int, 1)
	var read atomic.Int32
	options := quick()
	options.InFlightMax = count
	client := serving(t, options, func(frame object, p *peer) {
		if frame["type"] == "subscribe" {
			p.subscribed(frame, 0, "e")
			return
		}
		if read.Add(1) > 1 {
			return
		}
		<-queued
		go func() {
			_ = p.conn.Ping(within(t))
			ponged <- int(read.Load())
		}()
		// A slow way up: nothing is read while a message goes down, behind the ping.
		time.Sleep(100 * time.Millisecond)
		p.message("r", 1)
		<-goOn
	})
	s, err := client.Room("r").Subscribe(After(0, ""))
	if err != nil {
		t.Fatal(err)
	}
	take(t, s, 1)
	text := strings.Repeat("x", 64<<10)
	for range count {
		if _, err := client.Room("r").SendLater(text); err != nil {
			t.Fatal(err)
		}
	}
	close(queued)
	soon, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if _, err := s.Next(soon); err != nil {
		t.Error(err)
	}
	close(goOn)
	if before := <-ponged; before != count {
		t.Error(before)
	}
}

func TestAFinalRefusalFailsOneMessageAlone(t *testing.T) {
	room := serving(t, quick(), func(frame object, p *peer) {
		if frame["message"] == "bad" {
			p.refuse(frame, "id_reused", false)
		} else {
			p.ack(frame, 1)
		}
	}).Room("r")
	failures := sendAll(t, room, "a", "bad", "b")
	if failures[0] != nil || CodeOf(failures[1]) != "id_reused" || failures[2] != nil {
		t.Error(failures)
	}
}

func TestTheSameIDsGoOutAfterALostConnection(t *testing.T) {
	var ids []any
	room := serving(t, quick(), func(frame object, p *peer) {
		ids = append(ids, frame["messageId"])
		if p.number == 2 {
			p.ack(frame, 1)
		} else if len(ids) == 3 {
			_ = p.conn.Close(4409, "slow")
		}
	}).Room("r")
	if err := errors.Join(sendAll(t, room, "a", "b", "c")...); err != nil {
		t.Fatal(err)
	}
	if len(ids) != 6 || !slices.Equal(ids[:3], ids[3:]) {
		t.Error(ids)
	}
}

func TestAConnectionWithoutAnAnswerIsReplaced(t *testing.T) {
	options := quick()
	options.AnswerMax, options.SilenceMax = 100*time.Millisecond, 100*time.Millisecond
	room := serving(t, options, func(frame object, p *peer) {
		if p.number >= 2 {
			p.ack(frame, 1)
		}
	}).Room("r")
	if err := errors.Join(sendAll(t, room, "text")...); err != nil {
		t.Fatal(err)
	}
}

func TestWhatWaitsIsBoundedAndEndsWithTheClient(t *testing.T) {
	options := quick()
	options.WaitingMax = 2
	client := serving(t, options, func(object, *peer) {})
	first, err := client.Room("r").SendLater("a")
	if err != nil {
		t.Fatal(err)
	}
	second, err := client.Room("r").SendLater("b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Room("r").SendLater("c"); CodeOf(err) != "queue_full" {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := second(ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	client.Close()
	if _, err := first(within(t)); CodeOf(err) != "closed" {
		t.Error(err)
	}
}

func TestItGoesOnBehindTheLastMessageAndDropsRepeats(t *testing.T) {
	var asked []object
	client := serving(t, quick(), func(frame object, p *peer) {
		asked = append(asked, frame)
		p.subscribed(frame, 9, "e")
		if p.number == 1 {
			p.message("r", 5)
			p.message("r", 7)
			_ = p.conn.Close(websocket.StatusGoingAway, "shutting down; reconnect after 1 ms")
		} else {
			p.message("r", 7)
			p.message("r", 8)
		}
	})
	s, err := client.Room("r").Subscribe(After(4, ""))
	if err != nil {
		t.Fatal(err)
	}
	if found := take(t, s, 5); found != "ready 5 7 ready 8" {
		t.Error(found)
	}
	if asked[0]["after"] != 4.0 || asked[1]["after"] != 7.0 || asked[1]["epoch"] != "e" {
		t.Error(asked)
	}
	if s.Position() != (Position{"e", 8}) {
		t.Error(s.Position())
	}
}

func TestOneResetAndNoneAgainForAConnectionLostBehindIt(t *testing.T) {
	var asked []object
	client := serving(t, quick(), func(frame object, p *peer) {
		asked = append(asked, frame)
		p.subscribed(frame, 3, "f")
		if p.number == 1 {
			p.answer(object{"type": "reset", "roomId": "r", "epoch": "f", "oldest": 1, "head": 3})
			_ = p.conn.Close(4410, "")
		} else {
			p.message("r", 1)
		}
	})
	s, err := client.Room("r").Subscribe(After(9, "e"))
	if err != nil {
		t.Fatal(err)
	}
	if found := take(t, s, 4); found != "ready reset ready 1" {
		t.Error(found)
	}
	if asked[1]["after"] != 0.0 || asked[1]["epoch"] != "f" {
		t.Error(asked)
	}
}

func TestAReaderThatTakesNothingPausesAndAnUnsubscribingIsRepeated(t *testing.T) {
	var mu sync.Mutex
	var frames []string
	left := make(chan struct{})
	leaving := 0
	client := serving(t, quick(), func(frame object, p *peer) {
		mu.Lock()
		defer mu.Unlock()
		frames = append(frames, fmt.Sprint(frame["type"], frame["after"]))
		if frame["type"] == "subscribe" {
			p.subscribed(frame, 8, "e")
			for seq := int(frame["after"].(float64)) + 1; seq < 9; seq++ {
				p.message("r", seq)
			}
			return
		}
		if leaving++; leaving == 1 {
			p.refuse(frame, "too_many_requests", true)
			return
		}
		if leaving == 2 {
			close(left)
		}
		p.answer(object{"type": "unsubscribed", "roomId": "r"})
	})
	s, err := client.Room("r").Subscribe(After(0, ""), SubscribeOptions{BufferMax: 4})
	if err != nil {
		t.Fatal(err)
	}
	<-left
	// How often it pauses depends on who is faster.
	found := take(t, s, 4)
	for !strings.HasSuffix(found, " 7") {
		found += " " + take(t, s, 1)
	}
	if strings.ReplaceAll(found, "ready ", "") != "1 2 3 4 5 6 7" {
		t.Error(found)
	}
	mu.Lock()
	defer mu.Unlock()
	wanted := []string{"subscribe0", "unsubscribe<nil>", "unsubscribe<nil>", "subscribe3"}
	if len(frames) < 4 || !slices.Equal(frames[:4], wanted) {
		t.Error(frames)
	}
}

func TestWhatTheServerEndsIsAnErrorBehindWhatCameBefore(t *testing.T) {
	client := serving(t, quick(), func(frame object, p *peer) {
		p.subscribed(frame, 1, "e")
		p.message("r", 1)
		p.answer(object{"type": "error", "code": "removed", "roomId": "r", "retryable": false})
	})
	s, err := client.Room("r").Subscribe(After(0, ""))
	if err != nil {
		t.Fatal(err)
	}
	if found := take(t, s, 2); found != "ready 1" {
		t.Error(found)
	}
	if _, err := s.Next(within(t)); CodeOf(err) != "removed" {
		t.Error(err)
	}
	if _, err := s.Next(within(t)); err != ErrEnded {
		t.Error(err)
	}
}

func TestASubscriptionThatIsRefusedOrEndedIsAnError(t *testing.T) {
	for code, hasRef := range map[string]bool{"removed": true, "forbidden": false} {
		client := serving(t, quick(), func(frame object, p *peer) {
			if frame["roomId"] == "other" {
				p.subscribed(frame, 1, "e")
				p.message("other", 2)
				return
			}
			if hasRef {
				p.refuse(frame, code, false)
				return
			}
			p.subscribed(frame, 1, "e")
			p.answer(object{"type": "error", "code": code, "roomId": "r", "retryable": false})
		})
		ended, err := client.Room("r").Subscribe(FromNow())
		if err != nil {
			t.Fatal(err)
		}
		other, err := client.Room("other").Subscribe(FromNow())
		if err != nil {
			t.Fatal(err)
		}
		if found := take(t, other, 2); found != "ready 2" {
			t.Error(found)
		}
		// What came before the other room's message is here by now.
		soon, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for err = nil; err == nil; {
			_, err = ended.Next(soon)
		}
		if CodeOf(err) != code {
			t.Error(code, err)
		}
	}
}

func TestWhatConcernsAnOldSubscriptionIsNotTakenByANewOne(t *testing.T) {
	again, asked := make(chan struct{}), make(chan object, 9)
	client := serving(t, quick(), func(frame object, p *peer) {
		if frame["type"] == "subscribe" {
			p.subscribed(frame, 9, "e")
			asked <- frame
			return
		}
		<-again
		p.answer(object{"type": "reset", "roomId": "r", "epoch": "e", "oldest": 8, "head": 9})
		p.answer(object{"type": "error", "code": "forbidden", "roomId": "r", "retryable": false})
		p.answer(object{"type": "unsubscribed", "roomId": "r"})
	})
	old, err := client.Room("r").Subscribe(After(5, "e"))
	if err != nil {
		t.Fatal(err)
	}
	take(t, old, 1)
	<-asked
	old.Close()
	next, err := client.Room("r").Subscribe(After(7, "e"))
	if err != nil {
		t.Fatal(err)
	}
	close(again)
	if found := take(t, next, 1); found != "ready" {
		t.Error(found)
	}
	if frame := <-asked; frame["after"] != 7.0 {
		t.Error(frame)
	}
}

func TestAHandshakeRefusedForItsTokenIsFinal(t *testing.T) {
	for status, code := range map[int]string{401: "unauthorized", 403: "forbidden"} {
		client, requests := answering(t, &reply{503, "", http.Header{"Retry-After": {"0"}}}, &reply{status, "", nil})
		if _, err := client.Room("r").Send(within(t), "text"); CodeOf(err) != code || len(requests()) != 2 {
			t.Error(err, requests())
		}
	}
}

func TestARefusedHandshakeIsRepeatedWhenTheServerAsksFor(t *testing.T) {
	client, _ := answering(t, &reply{503, "", http.Header{"Retry-After": {"0.3"}}}, &reply{401, "", nil})
	begun := time.Now()
	_, _ = client.Room("r").Send(within(t), "text")
	if waited := time.Since(begun); waited < 300*time.Millisecond {
		t.Error(waited)
	}
}

func TestAConnectionThatAnOldTokenEndsIsFollowedByOneWithTheNew(t *testing.T) {
	var client *Client
	client = serving(t, withToken("old"), func(frame object, p *peer) {
		switch {
		case frame["type"] == "auth":
			p.refuse(frame, "unauthorized", false)
			_ = p.conn.Close(4401, "expired")
		case p.token == "Bearer old":
			client.SetToken("new")
		default:
			p.ack(frame, 1)
		}
	})
	if failures := sendAll(t, client.Room("r"), "text"); failures[0] != nil {
		t.Error(failures)
	}
}

func TestANewTokenThatIsRefusedIsFinal(t *testing.T) {
	var client *Client
	var handshakes atomic.Int32
	client = clientOf(t, withToken("old"), func(w http.ResponseWriter, r *http.Request) {
		if handshakes.Add(1) > 1 {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		client.SetToken("new")
		_ = conn.Close(4401, "expired")
	})
	failures := sendAll(t, client.Room("r"), "text")
	if CodeOf(failures[0]) != "unauthorized" || handshakes.Load() != 2 {
		t.Error(failures, handshakes.Load())
	}
}

func TestNothingIsLeftRunningOfAConnectionThatTheServerEnds(t *testing.T) {
	client := serving(t, quick(), func(_ object, p *peer) { _ = p.conn.Close(4401, "expired") })
	// It depends on who is faster.
	for range 300 {
		if failures := sendAll(t, client.Room("r"), "text"); CodeOf(failures[0]) != "unauthorized" {
			t.Error(failures)
		}
	}
	stacks := make([]byte, 1<<20)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		found := string(stacks[:runtime.Stack(stacks, true)])
		if !strings.Contains(found, "(*socket).") {
			return
		}
		if time.Now().After(end) {
			t.Fatal(found)
		}
	}
}

func TestATokenGivenDuringTheHandshakeIsSentBehindIt(t *testing.T) {
	arrived, goOn, frames := make(chan string, 9), make(chan struct{}), make(chan object, 9)
	client := clientOf(t, withToken("first"), func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.Header.Get("Authorization")
		<-goOn
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer conn.CloseNow()
		for {
			var frame object
			if wsjson.Read(r.Context(), conn, &frame) != nil {
				return
			}
			frames <- frame
		}
	})
	if _, err := client.Room("r").SendLater("text"); err != nil {
		t.Fatal(err)
	}
	if said := <-arrived; said != "Bearer first" {
		t.Error(said)
	}
	client.SetToken("second")
	close(goOn)
	if frame := <-frames; frame["type"] != "auth" || frame["token"] != "second" {
		t.Fatal(frame)
	}
	if frame := <-frames; frame["type"] != "send" {
		t.Error(frame)
	}
}

func TestATokenForSomebodyElseEndsWhatIsOpen(t *testing.T) {
	client := serving(t, quick(), func(frame object, p *peer) {
		if frame["type"] == "send" && p.number == 1 {
			_ = p.conn.Close(4403, "not you")
		} else if frame["type"] == "send" {
			p.ack(frame, 1)
		}
	})
	s, err := client.Room("r").Subscribe(FromNow())
	if err != nil {
		t.Fatal(err)
	}
	if failures := sendAll(t, client.Room("r"), "text"); CodeOf(failures[0]) != "forbidden" {
		t.Error(failures)
	}
	if _, err := s.Next(within(t)); CodeOf(err) != "forbidden" {
		t.Error(err)
	}
	// With another token it goes on.
	client.SetToken("another")
	if failures := sendAll(t, client.Room("r"), "text"); failures[0] != nil {
		t.Error(failures)
	}
}

func TestWhatIsGivenUpBehindAPingHoldsNothingUp(t *testing.T) {
	ponged := make(chan func())
	var mu sync.Mutex
	var texts []string
	client := serving(t, quick(), func(frame object, p *peer) {
		mu.Lock()
		texts = append(texts, frame["message"].(string))
		mu.Unlock()
		if frame["message"] != "given up" {
			p.ack(frame, 2)
			return
		}
		go func() {
			_ = p.conn.Ping(context.Background())
			ponged <- func() { p.ack(frame, 1) }
		}()
	})
	givenUp, err := client.Room("r").SendLater("given up")
	if err != nil {
		t.Fatal(err)
	}
	answer := <-ponged
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := givenUp(canceled); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	next, err := client.Room("r").SendLater("next")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := client.Room("s").SendLater("elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	answer()
	for _, wait := range []func(context.Context) (Receipt, error){next, elsewhere} {
		if _, err := wait(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(texts) != 3 {
		t.Error(texts)
	}
}

func TestTheNewestOnesAreAskedForOnce(t *testing.T) {
	asked := make(chan object, 9)
	connections := 0
	client := serving(t, quick(), func(frame object, p *peer) {
		connections++
		asked <- frame
		// Lost before the first message came; meanwhile, ten more are stored.
		if connections == 1 {
			p.subscribed(frame, 9, "e")
			_ = p.conn.Close(4409, "slow")
			return
		}
		p.subscribed(frame, 19, "e")
		p.message("r", 7)
	})
	subscription, err := client.Room("r").Subscribe(FromLast(3))
	if err != nil {
		t.Fatal(err)
	}
	for take(t, subscription, 1) != "7" {
	}
	first, second := <-asked, <-asked
	if first["last"] != 3.0 || first["after"] != nil {
		t.Error(first)
	}
	if second["last"] != nil || second["after"] != 6.0 || second["epoch"] != "e" {
		t.Error(second)
	}
}
