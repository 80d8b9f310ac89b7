package status

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"

	"connectrpc.com/connect/v2"
)

// Body is an OpenAI error object.
type Body struct {
	Error BodyError `json:"error"`
}

// BodyError is its inside; all four members are always present, as the official SDKs expect.
type BodyError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

// OpenAI turns err into the HTTP status and error object of the OpenAI-compatible door.
func OpenAI(err error) (int, Body) {
	e := As(err)
	r := table[e.Reason]
	body := Body{BodyError{Message: e.Message(), Type: r.typ, Code: string(e.Reason)}}
	if e.Param != "" {
		body.Error.Param = &e.Param
	}
	return r.http, body
}

// WriteOpenAI answers a request with err. Nothing may have been written before.
func WriteOpenAI(w http.ResponseWriter, err error) {
	code, body := OpenAI(err)
	if e := As(err); e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Del("Content-Length")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the caller is gone when this fails
}

func asRPC(err error, target **connect.Error) bool {
	var mine *Error
	return !errors.As(err, &mine) && errors.As(err, target)
}
