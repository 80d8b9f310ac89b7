package openai

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// embeddings serves POST /v1/embeddings.
func (h *handler) embeddings(w http.ResponseWriter, r *http.Request) {
	body, err := h.readBody(w, r)
	if err != nil {
		status.WriteOpenAI(w, err)
		return
	}
	req, inBase64, err := decodeEmbeddings(body, r.Header)
	if err != nil {
		status.WriteOpenAI(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	response, head, err := h.Gateway.Embed(ctx, req)
	if err != nil {
		status.WriteOpenAI(w, inThisDoorsWords(err))
		return
	}
	h.writeHead(w.Header(), head)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(encodeEmbeddings(response, inBase64)) // the caller is gone when this fails
}

// decodeEmbeddings translates a request. Input is a text, a list of texts, a list of tokens, or a list of those. Members
// that it does not know travel on to the vendor.
func decodeEmbeddings(body []byte, header http.Header) (req *ktmsv1.GetEmbeddingsRequest, inBase64 bool, err error) {
	members, err := openaiapi.ParseMembers(body)
	if err != nil {
		return nil, false, badJSON(err)
	}
	d := &decoding{}
	req = &ktmsv1.GetEmbeddingsRequest{Model: d.text(&members, "model")}
	req.Attributes, req.ActionId = d.attributes(&members)
	req.Placement = d.placement(&members, header, "")
	req.StrictParams = d.strict(header)
	if raw := members.Take("dimensions"); raw != nil && string(raw) != "null" {
		n, err := strconv.ParseInt(string(raw), 10, 32)
		if err != nil || n < 1 {
			d.wrong("dimensions", "expected a whole number of at least 1")
		}
		req.Dimensions = int32(n)
	}
	switch format := d.text(&members, "encoding_format"); format {
	case "", "float":
	case "base64":
		inBase64 = true
	default:
		d.wrong("encoding_format", "expected float or base64, got %q", format)
	}
	d.input(req, members.Take("input"))
	req.ExtraJson = withoutNulls(members).JSON()
	if len(d.found) > 0 {
		return nil, false, status.Invalid(d.found)
	}
	return req, inBase64, nil
}

func (d *decoding) input(req *ktmsv1.GetEmbeddingsRequest, raw json.RawMessage) {
	var one string
	var texts []string
	var tokens []int32
	var lists [][]int32
	switch {
	case json.Unmarshal(raw, &one) == nil && one != "":
		req.Inputs = []string{one}
	case json.Unmarshal(raw, &texts) == nil && len(texts) > 0 && !slices.Contains(texts, ""):
		req.Inputs = texts
	case bytes.Contains(raw, []byte("null")): // which would pass for the token 0
		d.wrong("input", "holds a null")
	case json.Unmarshal(raw, &tokens) == nil && len(tokens) > 0:
		req.TokenInputs = []*ktmsv1.TokenInput{{Tokens: tokens}}
	case json.Unmarshal(raw, &lists) == nil && len(lists) > 0:
		for _, list := range lists {
			req.TokenInputs = append(req.TokenInputs, &ktmsv1.TokenInput{Tokens: list})
		}
	default:
		d.wrong("input", "expected a string, a list of strings, a list of tokens or a list of lists of tokens, with at least one entry")
	}
}

func encodeEmbeddings(r *ktmsv1.GetEmbeddingsResponse, inBase64 bool) []byte {
	size := 256
	for _, e := range r.GetEmbeddings() {
		size += 64 + 12*len(e.GetVector())
	}
	dst := append(make([]byte, 0, size), `{"object":"list","data":[`...)
	for i, e := range r.GetEmbeddings() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(append(dst, `{"object":"embedding","index":`...), int64(e.GetIndex()), 10)
		dst = append(dst, `,"embedding":`...)
		if inBase64 {
			dst = append(dst, '"')
			dst = base64.StdEncoding.AppendEncode(dst, littleEndian(e.GetVector()))
			dst = append(dst, '"', '}')
			continue
		}
		dst = append(dst, '[')
		for j, x := range e.GetVector() {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendFloat(dst, float64(x), 'g', -1, 32)
		}
		dst = append(dst, ']', '}')
	}
	dst = openaiapi.AppendString(append(dst, `],"model":`...), r.GetResolvedModel())
	dst = strconv.AppendInt(append(dst, `,"usage":{"prompt_tokens":`...), r.GetUsage().GetInput(), 10)
	dst = strconv.AppendInt(append(dst, `,"total_tokens":`...), r.GetUsage().GetInput(), 10)
	if cost := r.GetUsage().GetCostNanousd(); cost > 0 {
		dst = strconv.AppendInt(append(dst, `,"cost_nanousd":`...), cost, 10)
	}
	if r.GetUsage().GetEstimated() {
		dst = append(dst, `,"estimated":true`...)
	}
	return append(dst, "}}"...)
}

// littleEndian is a vector as OpenAI encodes it.
func littleEndian(vector []float32) []byte {
	out := make([]byte, 0, 4*len(vector))
	for _, x := range vector {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}
