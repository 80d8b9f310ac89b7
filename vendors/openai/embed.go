package openai

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	api "github.com/sashabaranov/go-openai"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/transport"
)

var _ vendors.Embedder = (*Vendor)(nil)

// Embed implements vendors.Embedder. Floats are asked for: not every server of this dialect has base64.
func (v *Vendor) Embed(ctx context.Context, t vendors.Target, req *ktmsv1.GetEmbeddingsRequest) (*ktmsv1.GetEmbeddingsResponse, error) {
	d := dialectOf(t.Vendor)
	address, failed := endpoint(t, d, embeddingsPath)
	if failed != nil {
		return nil, failed
	}
	door := &embedDoor{vendor: v, target: t, dialect: d}
	var err error
	if door.address, err = url.Parse(address); err != nil {
		return nil, transport.Failure(ctx, t.Vendor, err)
	}
	wire := api.EmbeddingRequest{Model: api.EmbeddingModel(t.Model)}
	inputs := len(req.GetInputs())
	if tokens := req.GetTokenInputs(); len(tokens) > 0 {
		lists := make([][]int32, 0, len(tokens))
		for _, input := range tokens {
			lists = append(lists, input.GetTokens())
		}
		wire.Input, inputs = lists, len(lists)
	} else {
		wire.Input = req.GetInputs()
	}
	switch n := int(req.GetDimensions()); {
	case n > 0 && t.Vendor == vendors.Mistral:
		wire.ExtraBody = map[string]any{"output_dimension": n}
	case n > 0:
		wire.Dimensions = n
	}
	config := api.DefaultConfig("")
	config.HTTPClient = door
	answer, err := api.NewClientWithConfig(config).CreateEmbeddings(ctx, wire)
	if err != nil {
		return nil, door.failure(ctx, err)
	}
	return vectors(t, inputs, &answer)
}

// vectors puts the answer into the order of the inputs.
func vectors(t vendors.Target, inputs int, answer *api.EmbeddingResponse) (*ktmsv1.GetEmbeddingsResponse, error) {
	if len(answer.Data) != inputs {
		return nil, unavailable(t, fmt.Sprintf("answered with %d embeddings for %d inputs", len(answer.Data), inputs))
	}
	out := &ktmsv1.GetEmbeddingsResponse{Embeddings: make([]*ktmsv1.Embedding, inputs)}
	numbered := false // some servers leave the index out, and keep the order
	for i := range answer.Data {
		numbered = numbered || answer.Data[i].Index != 0
	}
	for i := range answer.Data {
		at := i
		if numbered {
			at = answer.Data[i].Index
		}
		if at < 0 || at >= inputs || out.Embeddings[at] != nil || len(answer.Data[i].Embedding) == 0 {
			return nil, unavailable(t, "answered with embeddings that do not fit the inputs")
		}
		out.Embeddings[at] = &ktmsv1.Embedding{Index: int32(at), Vector: answer.Data[i].Embedding}
	}
	if u := answer.Usage; u.PromptTokens > 0 || u.TotalTokens > 0 {
		out.Usage = &ktmsv1.TokensUsage{Input: max(int64(u.PromptTokens), int64(u.TotalTokens), 0)}
	}
	return out, nil
}

// embedDoor carries the library's one call with this dialect's address, headers, limits and errors.
type embedDoor struct {
	vendor  *Vendor
	target  vendors.Target
	dialect *dialect
	address *url.URL
	// status of the answer, and why reading it failed.
	status int
	broken error
}

// Do implements the library's HTTPDoer.
func (c *embedDoor) Do(hr *http.Request) (*http.Response, error) {
	hr.URL, hr.Host, hr.Header = c.address, "", http.Header{}
	if failed := c.vendor.headers(hr.Header, c.target, c.dialect, false); failed != nil {
		return nil, failed
	}
	res, err := c.vendor.client.Do(hr)
	if err != nil {
		return nil, transport.Failure(hr.Context(), c.target.Vendor, err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		defer res.Body.Close()
		failed := statusError(c.target, res)
		if hr.Context().Err() != nil {
			return nil, transport.Failure(hr.Context(), c.target.Vendor, hr.Context().Err())
		}
		return nil, failed
	}
	c.status = res.StatusCode
	res.Body = &embedBody{ReadCloser: res.Body, left: maxAnswer, door: c}
	return res, nil
}

// failure tells an answer that broke off from one that cannot be read.
func (c *embedDoor) failure(ctx context.Context, err error) *vendors.Error {
	if c.status == 0 || c.broken != nil || ctx.Err() != nil {
		if c.broken != nil {
			err = c.broken
		}
		return transport.Failure(ctx, c.target.Vendor, err)
	}
	e := garbled(c.target, err)
	e.Status = c.status
	return e
}

// embedBody bounds an answer and remembers why it broke off.
type embedBody struct {
	io.ReadCloser
	left int
	door *embedDoor
}

func (b *embedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		b.door.broken = unavailable(b.door.target, fmt.Sprintf("answered with more than %d bytes", maxAnswer))
		return 0, b.door.broken
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	if err != nil && err != io.EOF {
		b.door.broken = err
	}
	return n, err
}
