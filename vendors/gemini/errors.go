package gemini

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
	"github.com/ai-process/ktms/vendors/transport"
)

// maxWait is the longest wait that is believed, as for the waits of headers.
const maxWait = 24 * time.Hour

func unavailable(t vendors.Target, message string) *vendors.Error {
	return transport.Unavailable(t.Vendor, message)
}

func garbled(t vendors.Target, cause error) *vendors.Error { return transport.Garbled(t.Vendor, cause) }

// blocked is a prompt that the vendor's policy refused.
func blocked(t vendors.Target, f *wireFeedback) *vendors.Error {
	text := "the prompt was blocked: " + f.BlockReason
	if f.BlockReasonMessage != "" {
		text += ": " + f.BlockReasonMessage
	}
	return &vendors.Error{Kind: vendors.Blocked, Vendor: t.Vendor, Message: shown(t, text)}
}

// shown makes a vendor's words fit to show.
func shown(t vendors.Target, said string) string { return transport.Text(said, t.Key) }

// wireError is a google.rpc.Status.
type wireError struct {
	Code    int          `json:"code"`
	Message string       `json:"message"`
	Status  string       `json:"status"`
	Details []wireDetail `json:"details"`
}

// wireDetail is any of the details of google.rpc; the names of their members do not overlap.
type wireDetail struct {
	Reason     string `json:"reason"`
	RetryDelay string `json:"retryDelay"`
	Violations []struct {
		QuotaID string `json:"quotaId"`
	} `json:"violations"`
	Fields []struct {
		Field string `json:"field"`
	} `json:"fieldViolations"`
}

// readError finds the error in a body, which may stand in a list, or have the shape of whatever answers in the vendor's
// place.
func readError(body []byte) *wireError {
	item := bytes.TrimSpace(body)
	var list []json.RawMessage
	if len(item) > 0 && item[0] == '[' && json.Unmarshal(item, &list) == nil && len(list) > 0 {
		item = list[0]
	}
	var wire struct {
		Error *wireError `json:"error"`
	}
	if json.Unmarshal(item, &wire) == nil && wire.Error != nil {
		return wire.Error
	}
	if other := openaiapi.DecodeError(body); other != nil {
		code, _ := strconv.Atoi(other.Code)
		return &wireError{Code: code, Message: other.Message, Status: other.Type}
	}
	return &wireError{Message: string(body)}
}

// listError is the error of a list where one answer was expected.
func listError(t vendors.Target, body []byte) *vendors.Error {
	if said := readError(body); said.Code != 0 || said.Status != "" {
		return apiError(t, 0, said)
	}
	return unavailable(t, "answered with a list")
}

// statusError reads an answer that is an error.
func statusError(t vendors.Target, res *http.Response) *vendors.Error {
	e := apiError(t, res.StatusCode, readError(transport.ErrorBody(res)))
	if res.StatusCode >= 300 && res.StatusCode < 400 {
		e.Message = "answered with a redirect, which is not followed"
	}
	if e.Message == "" {
		e.Message = or(http.StatusText(res.StatusCode), "HTTP "+strconv.Itoa(res.StatusCode))
	}
	if wait := transport.RetryAfter(res.Header, time.Now()); wait > 0 && e.Kind != vendors.Denied {
		e.RetryAfter = wait
	}
	return e
}

// apiError is an error that the vendor described. Without a status it came within an answer that had begun well.
func apiError(t vendors.Target, status int, said *wireError) *vendors.Error {
	e := &vendors.Error{Kind: said.kind(status), Vendor: t.Vendor, Status: status, Message: shown(t, or(said.Message, said.Status))}
	for _, d := range said.Details {
		if wait, err := time.ParseDuration(d.RetryDelay); err == nil && wait > 0 && wait <= maxWait && e.Kind != vendors.Denied {
			e.RetryAfter = wait // a refusal for the day comes with a wait of seconds, which is of no use
		}
		if len(d.Fields) > 0 && e.Param == "" {
			e.Param = shown(t, paramOf(d.Fields[0].Field))
		}
	}
	return e
}

// codes are the canonical codes, as HTTP statuses.
var codes = map[string]int{
	"INVALID_ARGUMENT": 400, "FAILED_PRECONDITION": 400, "OUT_OF_RANGE": 400, "UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403,
	"NOT_FOUND": 404, "ABORTED": 409, "ALREADY_EXISTS": 409, "RESOURCE_EXHAUSTED": 429, "CANCELLED": 499, "INTERNAL": 500,
	"UNKNOWN": 500, "DATA_LOSS": 500, "UNIMPLEMENTED": 501, "UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504,
}

// What messages mean, in lower case, where neither status nor details say so.
var (
	overflowPhrases = []string{"exceeds the maximum number of tokens", "request payload size exceeds the limit"}
	// A signature of another model or account: the conversation can go on elsewhere.
	signaturePhrases = []string{"thought_signature", "thought signature", "thoughtsignature"}
	// The model lacks something that another may have: several answers, functions, an instruction.
	lackPhrases = []string{"is not enabled for", "does not support", "not supported by this model", "not supported for this model"}
	keyPhrases  = []string{"api key not valid", "api key expired", "api key not found"}
)

func (w *wireError) kind(status int) vendors.Kind {
	if status == 0 {
		if status = w.Code; status < 400 || status > 599 {
			status = codes[w.Status]
		}
	}
	text := strings.ToLower(w.Message)
	switch {
	case status == 0:
		return vendors.Unavailable
	case status == 499: // the vendor gave up; the caller did not, or there would be no answer to read
		return vendors.Unavailable
	case status == http.StatusTooManyRequests:
		if w.has(func(d *wireDetail) bool { return d.daily() }) {
			return vendors.Denied
		}
	case status != http.StatusBadRequest && status != http.StatusRequestEntityTooLarge:
	case hasAny(text, overflowPhrases):
		return vendors.Overflow
	case w.Status == "FAILED_PRECONDITION", hasAny(text, keyPhrases), // of the account: billing, its country
		w.has(func(d *wireDetail) bool { return strings.HasPrefix(d.Reason, "API_KEY_") }):
		return vendors.Denied
	case hasAny(text, signaturePhrases), hasAny(text, lackPhrases):
		return vendors.Unsupported
	}
	return transport.KindOf(status)
}

func (w *wireError) has(is func(*wireDetail) bool) bool {
	for i := range w.Details {
		if is(&w.Details[i]) {
			return true
		}
	}
	return false
}

// daily: the quota of the day is used up.
func (d *wireDetail) daily() bool {
	for _, v := range d.Violations {
		if strings.Contains(v.QuotaID, "PerDay") {
			return true
		}
	}
	return false
}

// params names the request fields behind the vendor's, by the last step of their path.
var params = map[string]vendors.Field{
	"temperature": vendors.Temperature, "topp": vendors.TopP, "topk": vendors.TopK, "candidatecount": vendors.N,
	"maxoutputtokens": vendors.MaxOutputTokens, "stopsequences": vendors.Stop, "seed": vendors.Seed,
	"presencepenalty": vendors.PresencePenalty, "frequencypenalty": vendors.FrequencyPenalty, "responselogprobs": vendors.Logprobs,
	"logprobs": vendors.TopLogprobs, "responsejsonschema": vendors.ResponseSchema, "responseschema": vendors.ResponseSchema,
	"thinkinglevel": vendors.ReasoningEffort, "thinkingbudget": vendors.ReasoningEffort, "thinkingconfig": vendors.ReasoningEffort,
	"servicetier": vendors.ServiceTier,
}

// paramOf is our name of a field that the vendor complained about; the vendor's where there is none.
func paramOf(field string) string {
	last := field[strings.LastIndexByte(field, '.')+1:]
	if known, ok := params[strings.ToLower(strings.ReplaceAll(last, "_", ""))]; ok {
		return known.Param()
	}
	return field
}

func hasAny(text string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}
