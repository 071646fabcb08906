package hubbub

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is a refusal by the server, or a failure to reach it. Decide by Code; the codes are in docs/api.md.
type Error struct {
	Code      string  `json:"code"`
	Detail    string  `json:"detail"`
	Retryable bool    `json:"retryable"`
	Status    int     `json:"status"`
	Errors    []Fault `json:"errors"`
	// Where a cursor that cannot be honoured may go on.
	Epoch  string `json:"epoch"`
	Oldest uint64 `json:"oldest"`
	Head   uint64 `json:"head"`
	// What a key has that does not meet a condition.
	Revision uint64 `json:"revision"`
	// An earlier attempt of the same call went unanswered, and may have taken effect.
	IsOpen bool `json:"-"`

	retryAfter time.Duration
	// Of a body that is not the server's, or is none.
	contentType string
}

// Fault is a rule that a field breaks.
type Fault struct {
	Field string `json:"field"`
	Rule  string `json:"rule"`
}

func (e *Error) Error() string {
	faults := make([]string, len(e.Errors))
	for i, fault := range e.Errors {
		faults[i] = fault.Field + " " + fault.Rule
	}
	if len(faults) > 0 {
		return e.Code + ": " + strings.Join(faults, "; ")
	}
	return e.Code + ": " + e.Detail
}

// CodeOf is the code of an error of this package, and "" of any other.
func CodeOf(err error) string {
	var known *Error
	if errors.As(err, &known) {
		return known.Code
	}
	return ""
}

// strange is of an answer that is not the server's, whatever its status: a proxy's page, for instance.
func strange(why string) *Error {
	return &Error{Code: "protocol", Detail: "the server's answer is not what is expected: " + why}
}

func errClosed() *Error { return &Error{Code: "closed", Detail: "the client was closed"} }

func unreachable(err error) *Error {
	return &Error{Code: "unreachable", Detail: err.Error(), Retryable: true}
}

// leavesOpen says that nobody knows whether the request took effect.
func (e *Error) leavesOpen() bool {
	// unexpected: a proxy's 502 or 504 says nothing of what the server did.
	return e.Code == "unconfirmed" || e.Code == "internal" || e.Code == "unreachable" || e.Code == "unexpected"
}

// problemBytesMax is the longest error that is read.
const problemBytesMax = 1 << 20

// statusCodes are codes of answers that are not the server's, such as a proxy's, or have no body, as those to HEAD.
var statusCodes = map[int]string{
	401: "unauthorized", 403: "forbidden", 404: "not_found", 408: "request_timeout", 429: "too_many_requests",
	501: "not_supported",
}

// problemOf is the error of a refusal, also of a proxy's.
func problemOf(response *http.Response) *Error {
	body, _ := io.ReadAll(io.LimitReader(response.Body, problemBytesMax))
	status := response.StatusCode
	isRetryable := status == 408 || status == 429 || (status >= 500 && status != 501)
	if status/100 == 3 {
		return redirection(response)
	}
	problem := &Error{Retryable: isRetryable}
	if json.Unmarshal(body, problem) != nil || problem.Code == "" {
		problem = &Error{Code: "unexpected", Detail: string(body[:min(len(body), 200)]), Retryable: isRetryable}
		if code, isKnown := statusCodes[status]; isKnown {
			problem.Code = code
		}
		orDefault(&problem.Detail, "the server answered "+response.Status)
		problem.contentType = response.Header.Get("Content-Type")
	}
	problem.Status = status
	problem.retryAfter = retryAfterOf(response)
	return problem
}

// redirection is of an answer that sends the caller elsewhere. The token is not for others. A temporary one may be a load
// balancer's page for maintenance: only a permanent one says that this is not the address.
func redirection(response *http.Response) *Error {
	where := "elsewhere"
	if location := response.Header.Get("Location"); location != "" {
		where = "to " + location[:min(len(location), 200)]
	}
	detail := "the server redirects " + where + "; only the address that answers itself will do"
	status := response.StatusCode
	isTemporary := status == http.StatusFound || status == http.StatusSeeOther || status == http.StatusTemporaryRedirect
	return &Error{
		Code: "unexpected", Detail: detail, Status: status, Retryable: isTemporary, retryAfter: retryAfterOf(response),
	}
}

// retryAfterOf a refusal is how long the server asks to wait.
func retryAfterOf(response *http.Response) time.Duration {
	seconds, err := strconv.ParseFloat(response.Header.Get("Retry-After"), 64)
	if isOverload := response.StatusCode == 429 || response.StatusCode == 503; err != nil && isOverload {
		seconds = 1
	}
	return time.Duration(seconds * float64(time.Second))
}
