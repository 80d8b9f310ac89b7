package openai

import (
	"encoding/json"
	"net/http"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/gateway"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/vendors/openaiapi"
	"github.com/ai-process/ktms/vendors/sse"
)

// stream answers as server-sent events: one [DONE] after a clean end, one error event and no [DONE] after a broken one.
func (h *handler) stream(w http.ResponseWriter, r *http.Request, wire *openaiapi.ChatRequest, req *ktmsv1.GenerateTextRequest) {
	s := &eventSink{handler: h, w: w, events: sse.NewWriter(w)}
	if o := wire.StreamOptions; o != nil && o.IncludeUsage != nil {
		s.wantsUsage = *o.IncludeUsage
	}
	err := h.Gateway.Stream(r.Context(), req, s)
	switch {
	case err == nil:
		s.end()
	case !s.started:
		status.WriteOpenAI(w, inThisDoorsWords(err))
	default:
		s.fail(err)
	}
}

// eventSink writes chunks as events. Every event carries the same id, role comes once per choice, and the finishing
// delta is empty: official clients insist on each.
type eventSink struct {
	handler    *handler
	w          http.ResponseWriter
	events     *sse.Writer
	wantsUsage bool

	started bool
	chunk   openaiapi.ChatChunk
	choices [1]openaiapi.ChunkChoice
	usage   *ktmsv1.TokensUsage
	// spoke marks the choices whose role was sent, custom the tool calls that take free text; their type stands on the
	// first fragment alone.
	spoke  map[int32]bool
	custom map[[2]int32]bool
	buffer []byte
}

// Head implements gateway.Sink.
func (s *eventSink) Head(head *gateway.Head) error {
	s.started = true
	s.spoke, s.custom = map[int32]bool{}, map[[2]int32]bool{}
	s.chunk = openaiapi.ChatChunk{ID: idPrefix + head.RequestID, Object: "chat.completion.chunk", Created: time.Now().Unix(), Model: head.Model}
	header := s.w.Header()
	s.handler.writeHead(header, head)
	sse.SetHeader(header)
	s.w.WriteHeader(http.StatusOK)
	return nil
}

// Send implements gateway.Sink. A chunk becomes one event, or two when it both says and ends something.
func (s *eventSink) Send(c *ktmsv1.GenerateTextChunk) error {
	if c.GetUsage() != nil {
		s.usage = c.GetUsage()
	}
	if c.GetSystemFingerprint() != "" {
		s.chunk.SystemFingerprint = c.GetSystemFingerprint()
	}
	if c.GetServiceTier() != "" {
		s.chunk.ServiceTier = c.GetServiceTier()
	}
	s.buffer = s.buffer[:0]
	delta := s.delta(c)
	if says(&delta) || c.GetLogprobsJson() != "" || (c.GetFinishReason() != "" && !s.spoke[c.GetIndex()]) {
		if !s.spoke[c.GetIndex()] {
			s.spoke[c.GetIndex()] = true
			delta.Role = "assistant"
			if delta.Content.Kind == openaiapi.ContentAbsent && len(delta.ToolCalls) == 0 {
				delta.Content = openaiapi.TextContent("")
			}
		}
		s.append(openaiapi.ChunkChoice{Index: int64(c.GetIndex()), Delta: delta, Logprobs: json.RawMessage(c.GetLogprobsJson())})
	}
	if c.GetFinishReason() != "" {
		s.append(openaiapi.ChunkChoice{Index: int64(c.GetIndex()), FinishReason: c.GetFinishReason()})
	}
	return s.write()
}

func (s *eventSink) delta(c *ktmsv1.GenerateTextChunk) openaiapi.Delta {
	delta := openaiapi.Delta{ReasoningContent: c.GetReasoningDelta(), Refusal: c.GetRefusalDelta(), Extra: members(c.GetExtraJson())}
	if c.GetDelta() != "" {
		delta.Content = openaiapi.TextContent(c.GetDelta())
	}
	for _, call := range c.GetToolCallChunks() {
		place := [2]int32{c.GetIndex(), call.GetIndex()}
		if call.GetType() == customType {
			s.custom[place] = true
		}
		delta.ToolCalls = append(delta.ToolCalls, toolCallDelta(call, s.custom[place]))
	}
	addOpaque(&delta, c.GetOpaque())
	return delta
}

func says(d *openaiapi.Delta) bool {
	return d.Content.Kind != openaiapi.ContentAbsent || d.ReasoningContent != "" || d.Refusal != "" || len(d.ToolCalls) > 0 || len(d.Extra) > 0
}

func toolCallDelta(c *ktmsv1.ToolCallChunk, custom bool) openaiapi.ToolCallDelta {
	out := openaiapi.ToolCallDelta{Index: new(int64(c.GetIndex())), ID: c.GetId(), Extra: members(c.GetExtraJson())}
	if c.GetId() != "" {
		out.Type = functionType
		if custom {
			out.Type = customType
		}
	}
	if custom {
		out.Custom = &openaiapi.CustomCall{Name: c.GetName(), Input: c.GetArguments()}
		return out
	}
	out.Function = &openaiapi.FunctionCall{Name: c.GetName(), Arguments: c.GetArguments()}
	return out
}

func (s *eventSink) append(choice openaiapi.ChunkChoice) {
	s.choices[0] = choice
	s.chunk.Choices = s.choices[:]
	s.buffer = s.chunk.AppendEvent(s.buffer)
}

// end sends the usage, if it was asked for and is known, and the one [DONE].
func (s *eventSink) end() {
	s.buffer = s.buffer[:0]
	if s.wantsUsage && s.usage != nil {
		s.chunk.Choices, s.chunk.Usage = nil, usage(s.usage)
		s.buffer = s.chunk.AppendEvent(s.buffer)
	}
	s.buffer = append(s.buffer, openaiapi.DoneEvent...)
	_ = s.write() // the caller is gone when this fails
}

// fail sends the one error event of a stream that broke.
func (s *eventSink) fail(err error) {
	_, body := status.OpenAI(inThisDoorsWords(err))
	_ = s.events.Data(body.AppendJSON(nil)) // the caller is gone when this fails
}

func (s *eventSink) write() error {
	if len(s.buffer) == 0 {
		return nil
	}
	return s.events.Write(s.buffer)
}
