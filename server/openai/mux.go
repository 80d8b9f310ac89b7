// Package openai is the OpenAI-compatible door: it translates HTTP/JSON into the gateway's methods and back.
package openai

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/gateway"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// Options is what a Handler needs.
type Options struct {
	Gateway *gateway.Service
	// MaxBody is the largest request body in bytes.
	MaxBody int64
	// Timeout bounds reading a body and answering a call that is not streamed.
	Timeout time.Duration
	// LegacyHeaders also speaks the headers' old names.
	LegacyHeaders bool
	// LegacySeen is told of every old header that a request carries.
	LegacySeen func(name string)
}

type handler struct{ Options }

// New returns the handler of everything under /v1/.
func New(options Options) http.Handler {
	h := &handler{options}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", h.chatCompletions)
	mux.HandleFunc("POST /v1/embeddings", h.embeddings)
	mux.HandleFunc("GET /v1/capabilities", h.capabilities)
	mux.HandleFunc("GET /v1/models", h.listModels)
	mux.HandleFunc("GET /v1/models/{id...}", h.getModel)
	for _, pattern := range unbuilt {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			status.WriteOpenAI(w, status.New(status.Unimplemented, "%s %s is not implemented in this release", r.Method, r.URL.Path))
		})
	}
	mux.HandleFunc("/", notFound(mux))
	return h.legacy(mux)
}

// unbuilt are endpoints of the contract that later releases serve.
var unbuilt = []string{
	"POST /v1/audio/speech", "POST /v1/images/generations", "POST /v1/decisions",
	"POST /v1/decisions/rollouts", "POST /v1/judge",
}

// notFound answers paths and methods that do not exist, in the door's shape.
func notFound(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			other := r.Clone(r.Context())
			other.Method = method
			if _, pattern := mux.Handler(other); method != r.Method && pattern != "/" {
				w.Header().Set("Allow", method)
				writeError(w, http.StatusMethodNotAllowed, "method_not_allowed", r.Method+" is not allowed here, use "+method)
				return
			}
		}
		writeError(w, http.StatusNotFound, "unknown_url", "unknown path "+r.URL.Path)
	}
}

// writeError writes an error that belongs to HTTP itself and has no reason in the contract.
func writeError(w http.ResponseWriter, code int, errorCode, message string) {
	body := openaiapi.ErrorBody{Message: message, Type: "invalid_request_error", Code: errorCode}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body.AppendJSON(nil))
}

// readBody reads the whole body within the size that the settings allow; the server bounds the time.
func (h *handler) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	var body []byte
	var err error
	if r.ContentLength > h.MaxBody {
		err = &http.MaxBytesError{Limit: h.MaxBody}
	} else {
		body, err = readAll(http.MaxBytesReader(w, r.Body, h.MaxBody), r.ContentLength)
	}
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &tooLarge):
		return nil, status.New(status.BodyTooLarge, "the request body is larger than %d bytes", h.MaxBody)
	default:
		return nil, status.Wrap(err, status.BadRequest, "the request body could not be read")
	}
}

// firstBuffer is the most that is set aside for a body before any of it has come: an announced length is only a claim.
const firstBuffer = 1 << 20

// readAll is io.ReadAll with the buffer sized by the announced length. It reads up to the end of the body.
func readAll(r io.Reader, announced int64) ([]byte, error) {
	var body bytes.Buffer
	body.Grow(int(min(max(announced, 0), firstBuffer)) + bytes.MinRead)
	_, err := body.ReadFrom(r)
	return body.Bytes(), err
}

func (h *handler) listModels(w http.ResponseWriter, r *http.Request) {
	list := openaiapi.ModelList{}
	for _, spec := range h.Gateway.ListModels(caller.From(r.Context())) {
		list.Data = append(list.Data, model(spec))
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(list.AppendJSON(nil))
}

func (h *handler) getModel(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	for _, spec := range h.Gateway.ListModels(caller.From(r.Context())) {
		if spec.GetId() == id {
			found := model(spec)
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(found.AppendJSON(nil))
			return
		}
	}
	e := status.New(status.ModelNotFound, "the model %q does not exist or this key cannot use it; GET /v1/models lists those it can", id)
	e.Param = "model"
	status.WriteOpenAI(w, e)
}

func model(spec *ktmsv1.ModelSpec) openaiapi.Model {
	return openaiapi.Model{ID: spec.GetId(), OwnedBy: spec.GetVendor()}
}
