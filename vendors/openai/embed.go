package openai

import (
	"context"
	"fmt"
	"net/url"

	api "github.com/sashabaranov/go-openai"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
	"github.com/ai-process/ktms/vendors/transport"
)

var _ vendors.Embedder = (*Vendor)(nil)

// Embed implements vendors.Embedder.
func (v *Vendor) Embed(ctx context.Context, t vendors.Target, req *ktmsv1.GetEmbeddingsRequest) (*ktmsv1.GetEmbeddingsResponse, error) {
	d := dialectOf(t.Vendor)
	address, failed := endpoint(t, d, embeddingsPath)
	if failed != nil {
		return nil, failed
	}
	wire, dropped, failed := encodeEmbed(t, d, req)
	if failed != nil {
		return nil, failed
	}
	inputs := max(len(req.GetInputs()), len(req.GetTokenInputs()))
	door := &embedDoor{vendor: v, target: t, dialect: d, limit: embedLimit(inputs), inputs: inputs, packed: wire.EncodingFormat != ""}
	var err error
	if door.address, err = url.Parse(address); err != nil {
		return nil, transport.Failure(ctx, t.Vendor, err)
	}
	config := api.DefaultConfig("")
	config.HTTPClient = door
	answer, err := api.NewClientWithConfig(config).CreateEmbeddings(ctx, *wire)
	if door.plain != nil {
		answer = *door.plain
	}
	if err != nil || len(answer.Data) == 0 {
		return nil, door.failure(ctx, err)
	}
	out, failed := vectors(t, inputs, &answer)
	if failed != nil {
		failed.Status = door.status
		return nil, failed
	}
	out.DroppedParams = dropped
	return out, nil
}

// reservedEmbed are the members of a call for vectors that have fields of their own.
var reservedEmbed = []string{"model", "input", "encoding_format", "dimensions"}

// mistralEmbeds are the further members that Mistral takes: it answers any other with an error.
var mistralEmbeds = []string{"output_dtype", "metadata"}

// encodeEmbed says a request in the library's words, and what of it is lost.
func encodeEmbed(t vendors.Target, d *dialect, req *ktmsv1.GetEmbeddingsRequest) (*api.EmbeddingRequest, []string, *vendors.Error) {
	wire := &api.EmbeddingRequest{Model: api.EmbeddingModel(t.Model), Input: req.GetInputs(), ExtraBody: map[string]any{}}
	if tokens := req.GetTokenInputs(); len(tokens) > 0 {
		lists := make([][]int32, 0, len(tokens))
		for _, input := range tokens {
			lists = append(lists, input.GetTokens())
		}
		wire.Input = lists
	}
	if d.packedVectors {
		wire.EncodingFormat = api.EmbeddingEncodingFormatBase64
	}
	ledger := vendors.NewLedger(t.Vendor, nil)
	if text := req.GetExtraJson(); text != "" {
		members, err := openaiapi.ParseMembers([]byte(text))
		if err != nil {
			ledger.Wrong("extra_json", "is not a JSON object")
		}
		for _, m := range members {
			if isOneOf(m.Name, reservedEmbed) || d.embedExtras != nil && !isOneOf(m.Name, d.embedExtras) {
				ledger.Drop(m.Name)
				continue
			}
			wire.ExtraBody[m.Name] = m.Value
		}
	}
	if n := int(req.GetDimensions()); n > 0 && d.dimensions != "" {
		wire.ExtraBody[d.dimensions] = n
	} else {
		wire.Dimensions = n
	}
	dropped, failed := ledger.Close(req.GetStrictParams())
	return wire, dropped, failed
}

// How large an answer can be. Vectors in base64 need six bytes a number, numbers in digits about twelve.
const (
	mostDimensions = 8192
	numberBytes    = 16
	embedSlack     = 1 << 20
	// maxEmbedAnswer bounds it for any number of inputs.
	maxEmbedAnswer = 512 << 20
	// embedSlackValues are the values of an answer beside its vectors.
	embedSlackValues = 64 << 10
)

func embedLimit(inputs int) int {
	return min(inputs*mostDimensions*numberBytes+embedSlack, maxEmbedAnswer)
}

// vectors puts the answer into the order of the inputs.
func vectors(t vendors.Target, inputs int, answer *api.EmbeddingResponse) (*ktmsv1.GetEmbeddingsResponse, *vendors.Error) {
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
