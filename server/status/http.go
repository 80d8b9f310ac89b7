package status

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/ai-process/ktms/vendors/openaiapi"
)

// OpenAI turns err into the HTTP status and error object of the OpenAI-compatible door.
func OpenAI(err error) (int, *openaiapi.ErrorBody) {
	e := As(err)
	r := table[e.Reason]
	return r.http, &openaiapi.ErrorBody{Message: e.Message(), Type: r.typ, Param: e.Param, Code: e.Code()}
}

// WriteOpenAI answers a request with err. Nothing may have been written before.
func WriteOpenAI(w http.ResponseWriter, err error) {
	code, body := OpenAI(err)
	if e := As(err); e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	for name, value := range Headers(As(err).Allowances) {
		w.Header().Set(name, value)
	}
	if As(err).final() {
		w.Header().Set("X-Should-Retry", "false") // honoured by the official SDKs
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Del("Content-Length")
	w.WriteHeader(code)
	_, _ = w.Write(body.AppendJSON(nil)) // the caller is gone when this fails
}

// soon is the longest wait that is worth an SDK's while.
const soon = time.Minute

// final reports whether another try would not help soon.
func (e *Error) final() bool {
	return table[e.Reason].final && (e.RetryAfter == 0 || e.RetryAfter > soon)
}

func asRPC(err error, target **connect.Error) bool {
	var mine *Error
	return !errors.As(err, &mine) && errors.As(err, target)
}
