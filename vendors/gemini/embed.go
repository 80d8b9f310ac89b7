package gemini

import (
	"context"
	"encoding/json"
	"math"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

// Embed implements vendors.Embedder.
func (v *Vendor) Embed(ctx context.Context, t vendors.Target, req *ktmsv1.GetEmbeddingsRequest) (*ktmsv1.GetEmbeddingsResponse, error) {
	if len(req.GetTokenInputs()) > 0 {
		return nil, &vendors.Error{
			Kind: vendors.Unsupported, Vendor: t.Vendor, Param: "input", Message: "input cannot be carried to this vendor: it takes texts, not tokens",
		}
	}
	res, failed := v.post(ctx, t, "batchEmbedContents", encodeEmbed(t, req), false)
	if failed != nil {
		return nil, failed
	}
	defer res.Body.Close()
	body, failed := readAll(ctx, t, res)
	if failed != nil {
		return nil, failed
	}
	out, failed := decodeEmbed(t, req, body)
	if failed != nil {
		return nil, within(failed, res)
	}
	return out, nil
}

func encodeEmbed(t vendors.Target, req *ktmsv1.GetEmbeddingsRequest) []byte {
	collection, id := split(t.Model)
	size := 0
	for _, text := range req.GetInputs() {
		size += 128 + len(text)
	}
	w := &writer{buf: make([]byte, 0, size)}
	w.group('{', '}', func() {
		w.array("requests", func() {
			for _, text := range req.GetInputs() {
				w.group('{', '}', func() {
					w.text("model", collection+"/"+id)
					w.name("content")
					w.content(&content{parts: []part{{text: text}}})
					if req.GetDimensions() > 0 {
						w.integer("outputDimensionality", int64(req.GetDimensions()))
					}
				})
			}
		})
	})
	return w.buf
}

// decodeEmbed reads the vectors. The vendor does not say what they cost.
func decodeEmbed(t vendors.Target, req *ktmsv1.GetEmbeddingsRequest, body []byte) (*ktmsv1.GetEmbeddingsResponse, *vendors.Error) {
	var wire struct {
		Embeddings []struct {
			Values []float32 `json:"values"`
		} `json:"embeddings"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(body, &wire); err != nil {
		return nil, garbled(t, err)
	}
	if len(wire.Error) > 0 && string(wire.Error) != "null" {
		return nil, apiError(t, 0, readError(body))
	}
	if len(wire.Embeddings) != len(req.GetInputs()) {
		return nil, unavailable(t, "answered with another number of vectors than was asked for")
	}
	out := &ktmsv1.GetEmbeddingsResponse{}
	for i, e := range wire.Embeddings {
		if len(e.Values) == 0 {
			return nil, unavailable(t, "answered with an empty vector")
		}
		if req.GetDimensions() > 0 {
			normalize(e.Values)
		}
		out.Embeddings = append(out.Embeddings, &ktmsv1.Embedding{Index: int32(i), Vector: e.Values})
	}
	return out, nil
}

// normalize gives a vector the length 1. Shortened ones of gemini-embedding-001 come without.
func normalize(vector []float32) {
	sum := 0.0
	for _, x := range vector {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		return
	}
	length := math.Sqrt(sum)
	for i, x := range vector {
		vector[i] = float32(float64(x) / length)
	}
}
