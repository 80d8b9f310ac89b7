package openai

import (
	"context"
	"errors"
	"net/http"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// chatCompletions serves POST /v1/chat/completions, in one piece or as a stream.
func (h *handler) chatCompletions(w http.ResponseWriter, r *http.Request) {
	body, err := h.readBody(w, r)
	if err != nil {
		status.WriteOpenAI(w, err)
		return
	}
	wire, err := openaiapi.DecodeChatRequest(body)
	if err != nil {
		status.WriteOpenAI(w, badJSON(err))
		return
	}
	req, err := decode(wire, r.Header)
	if err != nil {
		status.WriteOpenAI(w, err)
		return
	}
	if wire.Stream != nil && *wire.Stream {
		h.stream(w, r, wire, req)
		return
	}
	h.unary(w, r, req)
}

func (h *handler) unary(w http.ResponseWriter, r *http.Request, req *ktmsv1.GenerateTextRequest) {
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	response, head, err := h.Gateway.Generate(ctx, req)
	if err != nil {
		status.WriteOpenAI(w, inThisDoorsWords(err))
		return
	}
	h.writeHead(w.Header(), head)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(encode(response).AppendJSON(nil)) // the caller is gone when this fails
}

// badJSON names what is wrong with a body.
func badJSON(err error) error {
	e := status.Wrap(err, status.BadRequest, "%s", err.Error())
	if wrong, ok := errors.AsType[*openaiapi.TypeError](err); ok {
		e.Param = wrong.Path
	}
	return e
}

// words maps a request field's name in ktms.v1 to the one that callers of this door use.
var words = strings.NewReplacer(
	"max_output_tokens", "max_tokens", "model_override", "model", "response_schema_json", "response_format.json_schema.schema",
	"response_schema_name", "response_format.json_schema.name", "response_schema", "response_format.json_schema.schema",
	"token_inputs", "input", "inputs", "input", "].parameters", "].function.parameters",
	"parts[", "content[", "attributes[user_id]", "user", "attributes[", "metadata[", "parameters_json", "function.parameters",
)

// inThisDoorsWords spells the fields of an error as this door's callers do.
func inThisDoorsWords(err error) error {
	e := status.As(err)
	if e.Param == "" {
		return e
	}
	spelled := *e
	spelled.Param = words.Replace(e.Param)
	if len(e.Violations) > 0 {
		spelled.Violations = nil
		for _, v := range e.Violations {
			v.Path = words.Replace(v.Path)
			spelled.Violations = append(spelled.Violations, v)
		}
		spelled.Text = status.Invalid(spelled.Violations).Text
	}
	return &spelled
}
