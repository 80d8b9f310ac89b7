package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/ai-process/ktms/vendors"
)

const (
	// maxErrorBody is how much of an error's body is read; vendors send a few hundred bytes, proxies whole pages.
	maxErrorBody = 64 << 10
	// errorBodyTime is how long to wait for it: the status alone says what to do.
	errorBodyTime = 5 * time.Second
)

// KindOf is what a status means where nothing else is known.
func KindOf(status int) vendors.Kind {
	switch status {
	case http.StatusTooManyRequests:
		return vendors.RateLimited
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		// The address, a proxy or the law: the operator's affair, not the caller's.
		http.StatusMethodNotAllowed, http.StatusProxyAuthRequired, http.StatusGone, http.StatusMisdirectedRequest,
		http.StatusUnavailableForLegalReasons:
		return vendors.Denied
	case http.StatusRequestEntityTooLarge:
		return vendors.Overflow
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, 498: // 498 is Groq's "no capacity"
		return vendors.Unavailable
	}
	if status >= 300 && status < 400 {
		return vendors.Denied // a redirect that is not followed: the endpoint is another
	}
	if status >= 400 && status < 500 {
		return vendors.Invalid
	}
	return vendors.Unavailable
}

// Failure is the error of a call that got no answer, or not all of it. ctx is the caller's.
func Failure(ctx context.Context, vendor string, err error) *vendors.Error {
	if known, ok := errors.AsType[*vendors.Error](err); ok {
		return known
	}
	if ctx.Err() != nil {
		return &vendors.Error{Kind: vendors.Canceled, Vendor: vendor, Err: context.Cause(ctx)}
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return &vendors.Error{Kind: vendors.Unavailable, Vendor: vendor, Message: plainly(err), Err: err}
}

// plainly says what went wrong without addresses and without the words of the libraries below.
func plainly(err error) string {
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var op *net.OpError
	text := err.Error()
	switch {
	case errors.Is(err, ErrTimeout):
		return text
	case errors.As(err, &dns):
		return "its host name cannot be resolved"
	case errors.As(err, &cert), errors.As(err, &authority):
		return "its certificate is not trusted"
	case errors.As(err, &record), errors.As(err, &alert), strings.Contains(text, "TLS handshake"), strings.Contains(text, "tls:"):
		return "no TLS connection could be made"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	case errors.As(err, &op) && op.Op == "dial" && op.Timeout():
		return "connecting timed out"
	case errors.As(err, &op) && op.Op == "dial":
		return "it cannot be reached"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the connection was reset"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "the connection timed out"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), strings.Contains(text, "server closed idle connection"):
		return "the connection was closed before the end of the answer"
	case strings.Contains(text, "http2: "), strings.Contains(text, "stream error"):
		return "the connection was closed before the end of the answer"
	case strings.Contains(text, "malformed HTTP"):
		return "it does not speak HTTP"
	}
	return "the call could not be completed"
}

// ErrorBody reads the body of an answer that is an error: as much as is worth reading, and not for ever.
func ErrorBody(res *http.Response) []byte {
	giveUp := time.AfterFunc(errorBodyTime, func() { _ = res.Body.Close() })
	defer giveUp.Stop()
	data, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // a part of it is better than nothing
	return data
}

// RequestID is the vendor's own id of a call, under the names that vendors give it.
func RequestID(h http.Header) string {
	for _, name := range [...]string{"X-Request-Id", "Request-Id", "Apim-Request-Id", "X-Amzn-Requestid"} {
		if id := h.Get(name); id != "" {
			return id
		}
	}
	return ""
}
