package hubbub

import (
	"context"
	"errors"
	"net/url"
	"time"
)

// waitMax is the longest time the server waits for a message.
const waitMax = 20 * time.Second

// Queue to send to and to take from.
type Queue struct {
	name string
	path string
	http *httpClient
}

func newQueue(name string, h *httpClient) *Queue {
	return &Queue{name: name, path: "/v1/queues/" + segmentOf(name), http: h}
}

// QueueSettings: what is nil stays as it is.
type QueueSettings struct {
	LeaseMs       *int64  `json:"leaseMs,omitempty"`
	MaxDeliveries *int64  `json:"maxDeliveries,omitempty"`
	DeadLetter    *string `json:"deadLetter,omitempty"`
	TTLMs         *int64  `json:"ttlMs,omitempty"`
	MaxMessages   *int64  `json:"maxMessages,omitempty"`
	MaxBytes      *int64  `json:"maxBytes,omitempty"`
	OnFull        *string `json:"onFull,omitempty"`
	BackoffMs     *int64  `json:"backoffMs,omitempty"`
	BackoffMaxMs  *int64  `json:"backoffMaxMs,omitempty"`
}

// QueueState has counts of a queue.
type QueueState struct {
	Messages, Ready, Delayed, Leased, Bytes, Sent, Done, Dropped, Dead int64
}

// Create makes the queue, or changes the settings that are given.
func (q *Queue) Create(ctx context.Context, settings QueueSettings) error {
	return q.http.json(ctx, "messages", "PUT", q.path, settings, nil, 0)
}

// State of the queue.
func (q *Queue) State(ctx context.Context) (QueueState, error) {
	var state QueueState
	err := q.http.json(ctx, "messages", "GET", q.path, nil, &state, 0)
	return state, err
}

// QueueReceipt says that a message is on disk.
type QueueReceipt struct {
	ID        string `json:"id"`
	MessageID string `json:"messageId"`
	Copies    int64  `json:"copies"`
	SentAt    string `json:"sentAt"`
	Duplicate bool   `json:"duplicate"`
}

// QueueSendOptions of a message. What is empty is left out, but for the id, which is made.
type QueueSendOptions struct {
	MessageID string `json:"messageId,omitempty"`
	Sender    string `json:"sender,omitempty"`
	Receiver  string `json:"receiver,omitempty"`
	// "all": every registered client gets a copy.
	Audience  string `json:"audience,omitempty"`
	DelayMs   int64  `json:"delayMs,omitempty"`
	DeliverAt string `json:"deliverAt,omitempty"`
	GroupID   string `json:"groupId,omitempty"`
	TTLMs     int64  `json:"ttlMs,omitempty"`
}

// Send returns once the message is on disk. It is repeated with the same id until then: it is stored once.
func (q *Queue) Send(ctx context.Context, message string, options ...QueueSendOptions) (QueueReceipt, error) {
	var given QueueSendOptions
	if len(options) > 0 {
		given = options[0]
	}
	orDefault(&given.MessageID, MakeID())
	orDefault(&given.Sender, q.http.options.User)
	body := struct {
		Message string `json:"message"`
		QueueSendOptions
	}{message, given}
	var receipt QueueReceipt
	err := q.http.json(ctx, "id", "POST", q.path+"/messages", body, &receipt, 0)
	return receipt, err
}

// TakeOptions of a request for messages. What is zero has the server's default.
type TakeOptions struct {
	Max   int
	Lease time.Duration
	// How long to wait for the first, up to 20 s.
	Wait     time.Duration
	Receiver string
	// "oldest" or "newest".
	Order string
}

// Take takes messages on lease.
func (q *Queue) Take(ctx context.Context, options TakeOptions) ([]*Delivery, error) {
	orDefault(&options.Receiver, q.http.options.User)
	body := struct {
		Max      int    `json:"max,omitempty"`
		LeaseMs  int64  `json:"leaseMs,omitempty"`
		WaitMs   int64  `json:"waitMs,omitempty"`
		Receiver string `json:"receiver,omitempty"`
		Order    string `json:"order,omitempty"`
	}{options.Max, options.Lease.Milliseconds(), options.Wait.Milliseconds(), options.Receiver, options.Order}
	var taken struct {
		Messages []*Delivery `json:"messages"`
	}
	err := q.http.json(ctx, "messages", "POST", q.path+"/lease", body, &taken, options.Wait)
	for _, delivery := range taken.Messages {
		delivery.http, delivery.path = q.http, q.path+"/messages/"+url.PathEscape(delivery.ID)
	}
	return taken.Messages, err
}

// PollOptions of working through a queue.
type PollOptions struct {
	// 30 s if zero. It is extended while the handler works.
	Lease    time.Duration
	Receiver string
	// Gets what the handler returns, and the error of an acknowledgement that failed: then the message comes again, but
	// with IsOpen it may be done.
	OnError func(error)
}

// Poll works through the queue until ctx ends, the client is closed, or the server refuses. It calls handler with each
// delivery, extends its lease meanwhile, and acknowledges it when the handler returns nil. Otherwise the message goes back
// to the queue. Both also after ctx ended while the handler worked.
func (q *Queue) Poll(
	ctx context.Context, handler func(context.Context, *Delivery) error, options PollOptions,
) error {
	orDefault(&options.Lease, 30*time.Second)
	if options.OnError == nil {
		options.OnError = func(error) {}
	}
	ctx, cancel := q.http.until(ctx)
	defer cancel()
	who := new(int)
	defer q.http.troubles.set(who, nil)
	for ctx.Err() == nil {
		taken, err := q.Take(ctx, TakeOptions{Lease: options.Lease, Wait: waitMax, Receiver: options.Receiver})
		for _, delivery := range taken {
			if err == nil {
				err = delivery.work(ctx, handler, options)
			}
		}
		var refused *Error
		if !errors.As(err, &refused) {
			q.http.troubles.set(who, nil)
			continue
		}
		if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
			break
		}
		if !refused.Retryable {
			return err
		}
		q.http.troubles.set(who, refused)
		// Whatever the patience was. The loop looks at ctx.
		_ = sleep(ctx, q.http.options.pause(overloadAttempt, refused.retryAfter, random()))
	}
	return q.http.ended(ctx)
}

// Delivery is a message on lease.
type Delivery struct {
	ID       string `json:"id"`
	Sender   string `json:"sender"`
	Receiver string `json:"receiver"`
	// The text.
	Message     string `json:"message"`
	GroupID     string `json:"groupId"`
	SentAt      string `json:"sentAt"`
	Deliveries  int64  `json:"deliveries"`
	Receipt     string `json:"receipt"`
	LeasedUntil string `json:"leasedUntil"`

	http *httpClient
	path string
}

type leaseChange struct {
	Receipt string `json:"receipt"`
	LeaseMs int64  `json:"leaseMs,omitempty"`
	DelayMs *int64 `json:"delayMs,omitempty"`
}

// Ack says that it is done: the message is gone. The error is stale_receipt if the lease had ended; with IsOpen that
// may be this call's own doing.
func (d *Delivery) Ack(ctx context.Context) error {
	r, err := withJSON(request{method: "POST", path: d.path + "/ack"}, leaseChange{Receipt: d.Receipt})
	if err != nil {
		return err
	}
	return d.http.done(ctx, r)
}

// Nack gives the message back, after the queue's own backoff.
func (d *Delivery) Nack(ctx context.Context) error {
	return d.http.json(ctx, "id", "POST", d.path+"/nack", leaseChange{Receipt: d.Receipt}, nil, 0)
}

// NackAfter gives the message back, for others to have after delay.
func (d *Delivery) NackAfter(ctx context.Context, delay time.Duration) error {
	ms := delay.Milliseconds()
	return d.http.json(ctx, "id", "POST", d.path+"/nack", leaseChange{Receipt: d.Receipt, DelayMs: &ms}, nil, 0)
}

// Extend lets the lease end so long from now.
func (d *Delivery) Extend(ctx context.Context, lease time.Duration) error {
	body := leaseChange{Receipt: d.Receipt, LeaseMs: lease.Milliseconds()}
	return d.http.json(ctx, "leasedUntil", "POST", d.path+"/extend", body, nil, 0)
}

func (d *Delivery) work(
	ctx context.Context, handler func(context.Context, *Delivery) error, options PollOptions,
) error {
	// Else what is done would not be acknowledged, and be done again. The patience bounds it.
	settling := context.WithoutCancel(ctx)
	extending, stop := context.WithCancel(settling)
	defer stop()
	go func() {
		for sleep(extending, options.Lease/3) == nil {
			// If it fails, the acknowledgement will tell.
			_ = d.Extend(extending, options.Lease)
		}
	}()
	failed := handler(ctx, d)
	stop()
	if failed != nil {
		// If it fails, the lease ends by itself.
		_ = d.Nack(settling)
		options.OnError(failed)
		return nil
	}
	err := d.Ack(settling)
	if err != nil {
		options.OnError(err)
	}
	if CodeOf(err) == "stale_receipt" {
		return nil
	}
	return err
}
