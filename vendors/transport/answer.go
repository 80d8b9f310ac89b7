package transport

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/ai-process/ktms/vendors"
)

// Unavailable is the error of an answer that is none.
func Unavailable(vendor, message string) *vendors.Error {
	return &vendors.Error{Kind: vendors.Unavailable, Vendor: vendor, Message: message}
}

// Garbled is the error of an answer that cannot be read. The cause says where, not what: the text may be the caller's.
func Garbled(vendor string, cause error) *vendors.Error {
	e := Unavailable(vendor, "answered with something that is not the API's JSON")
	e.Err = cause
	return e
}

// HeaderKey is a credential that is to stand in a header.
func HeaderKey(vendor string, key vendors.Secret) (string, *vendors.Error) {
	plain := key.Reveal()
	if strings.ContainsFunc(plain, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", &vendors.Error{Kind: vendors.Denied, Vendor: vendor, Message: "the vendor key holds characters that no header can carry"}
	}
	return plain, nil
}

// ReadAll reads a complete answer of at most so many bytes. ctx is the caller's.
func ReadAll(ctx context.Context, vendor string, res *http.Response, most int64) ([]byte, *vendors.Error) {
	body, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	if err != nil {
		return nil, Failure(ctx, vendor, err)
	}
	if int64(len(body)) > most {
		return nil, Unavailable(vendor, fmt.Sprintf("answered with more than %d bytes", most))
	}
	return body, nil
}

// Call makes one call and returns once the vendor accepted it; refused reads any other answer.
func (c *Client) Call(hr *http.Request, vendor string, refused func(*http.Response) *vendors.Error) (*http.Response, *vendors.Error) {
	res, err := c.Do(hr)
	if err != nil {
		return nil, Failure(hr.Context(), vendor, err)
	}
	if res.StatusCode >= 200 && res.StatusCode <= 299 {
		return res, nil
	}
	defer res.Body.Close()
	failed := refused(res)
	if err := hr.Context().Err(); err != nil {
		return nil, Failure(hr.Context(), vendor, err)
	}
	return nil, failed
}

// Within adds the status to an error that came in an answer with a good one.
func Within(e *vendors.Error, res *http.Response) *vendors.Error {
	if e.Status == 0 && e.Kind != vendors.Canceled {
		e.Status = res.StatusCode
	}
	return e
}
