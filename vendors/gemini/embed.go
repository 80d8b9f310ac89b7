package gemini

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
	"github.com/ai-process/ktms/vendors/transport"
)

// maxInputs is the most texts that one call takes. Keystone makes one call of each request.
const maxInputs = 100

// Embed implements vendors.Embedder.
func (v *Vendor) Embed(ctx context.Context, t vendors.Target, req *ktmsv1.GetEmbeddingsRequest) (*ktmsv1.GetEmbeddingsResponse, error) {
	encoded, dropped, failed := encodeEmbed(t, req)
	if failed != nil {
		return nil, failed
	}
	res, failed := v.post(ctx, t, "batchEmbedContents", encoded, false)
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
		return nil, transport.Within(failed, res)
	}
	out.DroppedParams = dropped
	return out, nil
}

// encodeEmbed writes the body, and says what of the request is lost.
func encodeEmbed(t vendors.Target, req *ktmsv1.GetEmbeddingsRequest) ([]byte, []string, *vendors.Error) {
	ledger := vendors.NewLedger(t.Vendor, nil)
	if len(req.GetTokenInputs()) > 0 {
		ledger.Refuse("input", "it takes texts, not tokens")
	}
	if n := len(req.GetInputs()); n > maxInputs {
		ledger.Refuse("input", fmt.Sprintf("it takes at most %d inputs in one call, not %d", maxInputs, n))
	}
	task, title := embedExtras(ledger, req.GetExtraJson())
	dropped, failed := ledger.Close(req.GetStrictParams())
	if failed != nil {
		return nil, nil, failed
	}
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
					w.maybeText("taskType", task)
					w.maybeText("title", title)
					if req.GetDimensions() > 0 {
						w.integer("outputDimensionality", int64(req.GetDimensions()))
					}
				})
			}
		})
	})
	return w.buf, dropped, nil
}

// embedExtras reads the members that the vendor has, too: they say of each text what it is for. All others are lost.
func embedExtras(ledger *vendors.Ledger, text string) (task, title string) {
	if text == "" {
		return "", ""
	}
	members, err := openaiapi.ParseMembers([]byte(text))
	if err != nil {
		ledger.Wrong("extra_json", "is not a JSON object")
	}
	for _, m := range members {
		var value string
		if string(m.Value) == "null" {
			continue
		}
		switch text := json.Unmarshal(m.Value, &value) == nil && value != ""; {
		case text && (m.Name == "task_type" || m.Name == "taskType"):
			task = value
		case text && m.Name == "title":
			title = value
		default:
			ledger.Drop(m.Name)
		}
	}
	return task, title
}

// decodeEmbed reads the vectors. The vendor does not say what they cost.
func decodeEmbed(t vendors.Target, req *ktmsv1.GetEmbeddingsRequest, body []byte) (*ktmsv1.GetEmbeddingsResponse, *vendors.Error) {
	var wire struct {
		Embeddings []struct {
			Values []float32 `json:"values"`
		} `json:"embeddings"`
		Error json.RawMessage `json:"error"`
	}
	if list := bytes.TrimSpace(body); len(list) > 0 && list[0] == '[' {
		return nil, listError(t, body)
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
