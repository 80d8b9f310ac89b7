package openaiapi

import "encoding/json"

// ChatResponse is the answer of POST /v1/chat/completions.
type ChatResponse struct {
	ID                string
	Object            string
	Created           int64
	Model             string
	Choices           []Choice
	Usage             *Usage
	ServiceTier       string
	SystemFingerprint string
	// Error is set when a server sent an error with status 200.
	Error *ErrorBody
	Extra Members
}

// Choice is one answer.
type Choice struct {
	Index        int64
	Message      Message
	FinishReason string // empty stands for null
	Logprobs     json.RawMessage
	Extra        Members
}

// ChatChunk is one event of a stream.
type ChatChunk struct {
	ID                string
	Object            string
	Created           int64
	Model             string
	Choices           []ChunkChoice
	Usage             *Usage
	ServiceTier       string
	SystemFingerprint string
	// Error is set when the stream broke.
	Error *ErrorBody
	Extra Members
}

// ChunkChoice is the next piece of one answer.
type ChunkChoice struct {
	Index        int64
	Delta        Delta
	FinishReason string // empty stands for null
	Logprobs     json.RawMessage
	Extra        Members
}

// Usage counts tokens.
type Usage struct {
	PromptTokens            int64
	CompletionTokens        int64
	TotalTokens             int64
	PromptTokensDetails     *PromptTokensDetails
	CompletionTokensDetails *CompletionTokensDetails
	Extra                   Members
}

// PromptTokensDetails are parts of the prompt's tokens.
type PromptTokensDetails struct {
	CachedTokens     int64
	CacheWriteTokens int64
	AudioTokens      int64
	Extra            Members
}

// CompletionTokensDetails are parts of the answer's tokens.
type CompletionTokensDetails struct {
	ReasoningTokens          int64
	AudioTokens              int64
	AcceptedPredictionTokens int64
	RejectedPredictionTokens int64
	Extra                    Members
}

// DecodeChatResponse reads an answer, leniently: the only errors are *SyntaxError, and *TypeError for an answer that is no
// object or has more values than can be.
func DecodeChatResponse(data []byte) (*ChatResponse, error) {
	r := &ChatResponse{}
	d := newDecoder(data, true)
	if d.root() {
		d.chatResponse(r)
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return r, nil
}

// Decode reads one event's data into c, leniently as DecodeChatResponse. What c held before is gone, but its memory is
// used again: a stream decodes all its chunks into one. Nothing of c may be kept over the next Decode but its strings.
func (c *ChatChunk) Decode(data []byte) error {
	before := *c
	*c = ChatChunk{Choices: before.Choices[:0]}
	d := newDecoder(data, true)
	if d.root() {
		d.chatChunk(c, &before)
	}
	return d.end()
}

// UnmarshalJSON is Decode for encoding/json.
func (c *ChatChunk) UnmarshalJSON(data []byte) error { return c.Decode(append([]byte(nil), data...)) }

func (d *decoder) chatResponse(r *ChatResponse) {
	for d.member() {
		switch string(d.name()) {
		case "id":
			d.str(&r.ID, &r.Extra)
		case "object":
			d.str(&r.Object, &r.Extra)
		case "created":
			d.count(&r.Created, &r.Extra)
		case "model":
			d.str(&r.Model, &r.Extra)
		case "choices":
			r.Choices = nil
			if d.list("", &r.Extra) {
				for d.element() {
					if d.elementObject() {
						r.Choices = append(r.Choices, Choice{})
						d.choice(&r.Choices[len(r.Choices)-1])
					}
				}
			}
		case "usage":
			d.usage(&r.Usage, &r.Extra)
		case "service_tier":
			d.str(&r.ServiceTier, &r.Extra)
		case "system_fingerprint":
			d.str(&r.SystemFingerprint, &r.Extra)
		case "error":
			r.Error = d.errorValue()
		default:
			d.keep(&r.Extra)
		}
	}
}

func (d *decoder) choice(c *Choice) {
	for d.member() {
		switch string(d.name()) {
		case "index":
			d.count(&c.Index, &c.Extra)
		case "message":
			if c.Message = (Message{}); d.object("", &c.Extra) {
				d.message(&c.Message)
			}
		case "finish_reason":
			d.str(&c.FinishReason, &c.Extra)
		case "logprobs":
			d.value(&c.Logprobs)
		default:
			d.keep(&c.Extra)
		}
	}
}

func (d *decoder) chatChunk(c, before *ChatChunk) {
	for d.member() {
		switch string(d.name()) {
		case "id":
			d.strLike(&c.ID, before.ID, &c.Extra)
		case "object":
			d.strLike(&c.Object, before.Object, &c.Extra)
		case "created":
			d.count(&c.Created, &c.Extra)
		case "model":
			d.strLike(&c.Model, before.Model, &c.Extra)
		case "choices":
			c.Choices = c.Choices[:0]
			if d.list("", &c.Extra) {
				for d.element() {
					if d.elementObject() {
						c.Choices = append(c.Choices, ChunkChoice{})
						d.chunkChoice(&c.Choices[len(c.Choices)-1])
					}
				}
			}
		case "usage":
			d.usage(&c.Usage, &c.Extra)
		case "service_tier":
			d.strLike(&c.ServiceTier, before.ServiceTier, &c.Extra)
		case "system_fingerprint":
			d.strLike(&c.SystemFingerprint, before.SystemFingerprint, &c.Extra)
		case "error":
			c.Error = d.errorValue()
		default:
			d.keep(&c.Extra)
		}
	}
}

func (d *decoder) chunkChoice(c *ChunkChoice) {
	for d.member() {
		switch string(d.name()) {
		case "index":
			d.count(&c.Index, &c.Extra)
		case "delta":
			if c.Delta = (Delta{}); d.object("", &c.Extra) {
				d.message(&c.Delta)
			}
		case "finish_reason":
			d.str(&c.FinishReason, &c.Extra)
		case "logprobs":
			d.value(&c.Logprobs)
		default:
			d.keep(&c.Extra)
		}
	}
}

// DecodeUsage reads a usage that stands elsewhere than usual, such as Groq's x_groq.usage; nil when it is none.
func DecodeUsage(data []byte) *Usage {
	d := newDecoder(data, true)
	var u *Usage
	var extra Members
	if d.kind() != '{' {
		return nil
	}
	if d.usage(&u, &extra); d.end() != nil {
		return nil
	}
	return u
}

func (d *decoder) usage(field **Usage, extra *Members) {
	*field = nil
	if !d.object("", extra) {
		return
	}
	u := &Usage{}
	*field = u
	for d.member() {
		switch string(d.name()) {
		case "prompt_tokens":
			d.count(&u.PromptTokens, &u.Extra)
		case "completion_tokens":
			d.count(&u.CompletionTokens, &u.Extra)
		case "total_tokens":
			d.count(&u.TotalTokens, &u.Extra)
		case "prompt_tokens_details":
			if d.object("", &u.Extra) {
				p := &PromptTokensDetails{}
				u.PromptTokensDetails = p
				for d.member() {
					switch string(d.name()) {
					case "cached_tokens":
						d.count(&p.CachedTokens, &p.Extra)
					case "cache_write_tokens":
						d.count(&p.CacheWriteTokens, &p.Extra)
					case "audio_tokens":
						d.count(&p.AudioTokens, &p.Extra)
					default:
						d.keep(&p.Extra)
					}
				}
			}
		case "completion_tokens_details":
			if d.object("", &u.Extra) {
				c := &CompletionTokensDetails{}
				u.CompletionTokensDetails = c
				for d.member() {
					switch string(d.name()) {
					case "reasoning_tokens":
						d.count(&c.ReasoningTokens, &c.Extra)
					case "audio_tokens":
						d.count(&c.AudioTokens, &c.Extra)
					case "accepted_prediction_tokens":
						d.count(&c.AcceptedPredictionTokens, &c.Extra)
					case "rejected_prediction_tokens":
						d.count(&c.RejectedPredictionTokens, &c.Extra)
					default:
						d.keep(&c.Extra)
					}
				}
			}
		default:
			d.keep(&u.Extra)
		}
	}
}
