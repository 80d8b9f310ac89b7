package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	api "github.com/sashabaranov/go-openai"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
	"github.com/ai-process/ktms/vendors/transport"
)

// embedHead is how much of an answer is kept to find an error in it; the first vector begins in it, too.
const embedHead = 4 << 10

// inDigits finds the beginning of a vector that is written as a list of numbers.
var inDigits = regexp.MustCompile(`"embedding"\s*:\s*\[`)

// embedDoor carries the library's one call with this dialect's address, headers, limits and errors.
type embedDoor struct {
	vendor  *Vendor
	target  vendors.Target
	dialect *dialect
	address *url.URL
	limit   int
	// inputs is how many vectors were asked for.
	inputs int
	// packed: vectors in base64 were asked for.
	packed bool
	// plain is the answer of a server that does not know base64.
	plain *api.EmbeddingResponse
	// status of the answer, how it began, and why reading it failed.
	status int
	head   []byte
	broken error
}

// Do implements the library's HTTPDoer.
func (c *embedDoor) Do(hr *http.Request) (*http.Response, error) {
	hr.URL, hr.Host, hr.Header = c.address, "", http.Header{}
	if failed := c.vendor.headers(hr.Header, c.target, c.dialect, false); failed != nil {
		return nil, failed
	}
	res, failed := c.vendor.client.Call(hr, c.target.Vendor, func(res *http.Response) *vendors.Error { return statusError(c.target, res) })
	if failed != nil {
		return nil, failed
	}
	c.status = res.StatusCode
	body := &embedBody{ReadCloser: res.Body, left: c.limit + 1, objects: c.inputs + embedSlackValues,
		values: c.inputs*mostDimensions + embedSlackValues, door: c}
	ahead := bufio.NewReaderSize(body, embedHead)
	head, _ := ahead.Peek(embedHead) // what went wrong shows again when the rest is read
	c.head = bytes.Clone(head)
	res.Body = struct {
		io.Reader
		io.Closer
	}{ahead, body}
	if !c.packed || !inDigits.Match(head) {
		return res, nil
	}
	defer res.Body.Close()
	plain := new(api.EmbeddingResponse)
	if err := json.NewDecoder(ahead).Decode(plain); err != nil {
		return nil, err
	}
	c.plain = plain
	res.Body = io.NopCloser(strings.NewReader("{}"))
	return res, nil
}

// failure says why there are no vectors: the answer broke off, or is an error, or cannot be read. err is nil where it
// could be.
func (c *embedDoor) failure(ctx context.Context, err error) *vendors.Error {
	if c.broken != nil {
		err = c.broken
	}
	if err != nil && (c.status == 0 || c.broken != nil || ctx.Err() != nil) {
		return transport.Failure(ctx, c.target.Vendor, err)
	}
	var e *vendors.Error
	if said := openaiapi.DecodeError(c.head); said != nil {
		e = apiError(c.target, 0, said)
	} else if err != nil {
		e = garbled(c.target, err)
	} else {
		e = unavailable(c.target, "answered without an embedding")
	}
	e.Status = c.status
	return e
}

// embedBody bounds an answer and remembers why it broke off.
type embedBody struct {
	io.ReadCloser
	left int
	// objects and values are how many more of them may come: each takes up to thirty times the room of its text.
	objects, values int
	door            *embedDoor
}

// tooMuch is the end of an answer that is too large. The bound is ours, so that the vendor is not to blame, and another try
// would end the same.
func (b *embedBody) tooMuch(what string) error {
	if b.door.broken == nil {
		b.door.broken = &vendors.Error{Kind: vendors.Unsupported, Vendor: b.door.target.Vendor, Status: b.door.status,
			Message: "answered with more " + what + " that these inputs can need"}
	}
	return b.door.broken
}

func (b *embedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, b.tooMuch(fmt.Sprintf("than the %d bytes", b.door.limit))
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	b.objects -= bytes.Count(p[:n], []byte("{"))
	b.values -= bytes.Count(p[:n], []byte(","))
	if b.objects < 0 || b.values < 0 {
		b.left = 0
		return 0, b.tooMuch("than the values")
	}
	if err != nil && err != io.EOF {
		b.door.broken = err
	}
	return n, err
}
