package gemini

import (
	"bytes"
	"encoding/json"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

// maxCalls bounds what a server can make this process remember of one answer; a request may declare 512 tools.
const maxCalls = 1024

// stream turns the events of one answer into chunks.
type stream struct {
	target  vendors.Target
	asked   int // answers
	names   map[string]string
	choices [maxCandidates]*choice
	usage   *ktmsv1.TokensUsage

	// What was said already, so that each chunk says only what is new.
	id, model, tier string
}

func newStream(t vendors.Target, asked int, names map[string]string) *stream {
	return &stream{target: t, asked: asked, names: names}
}

// read reads an answer, or the failure that stands in its place.
func (s *stream) read(data []byte) (*wireResponse, *vendors.Error) {
	if list := bytes.TrimSpace(data); len(list) > 0 && list[0] == '[' {
		return nil, listError(s.target, data)
	}
	var wire wireResponse
	if err := json.Unmarshal(data, &wire); err != nil {
		return nil, garbled(s.target, err)
	}
	if len(wire.Error) > 0 && string(wire.Error) != "null" {
		return nil, apiError(s.target, 0, readError(data))
	}
	if f := wire.PromptFeedback; f != nil && f.BlockReason != "" && len(wire.Candidates) == 0 {
		s.count(&wire)
		return nil, blocked(s.target, f)
	}
	return &wire, nil
}

func (s *stream) count(wire *wireResponse) {
	if u := usage(wire.Usage); u != nil {
		s.usage = u
	}
}

// state finds the answer of an index.
func (s *stream) state(index int64) (*choice, *vendors.Error) {
	if index < 0 || index >= maxCandidates {
		return nil, unavailable(s.target, "answered with a candidate that was not asked for")
	}
	if s.choices[index] == nil {
		s.choices[index] = &choice{}
	}
	return s.choices[index], nil
}

// take reads the data of one event. A list of answers is what the vendor sends when it does not speak in events.
func (s *stream) take(data []byte) ([]*ktmsv1.GenerateTextChunk, *vendors.Error) {
	var list []json.RawMessage
	if trimmed := bytes.TrimSpace(data); len(trimmed) == 0 || trimmed[0] != '[' || json.Unmarshal(trimmed, &list) != nil {
		return s.event(data)
	}
	var out []*ktmsv1.GenerateTextChunk
	for _, item := range list {
		chunks, failed := s.event(item)
		if out = append(out, chunks...); failed != nil {
			return out, failed
		}
	}
	return out, nil
}

func (s *stream) event(data []byte) ([]*ktmsv1.GenerateTextChunk, *vendors.Error) {
	wire, failed := s.read(data)
	if failed != nil {
		return nil, failed
	}
	s.count(wire)
	var out []*ktmsv1.GenerateTextChunk
	for i := range wire.Candidates {
		w := &wire.Candidates[i]
		c, failed := s.state(w.Index)
		if failed != nil {
			return out, failed
		}
		if w.FinishReason == unspecified {
			w.FinishReason = "" // not yet
		}
		chunk, failed := c.take(s.target, s.names, w)
		if failed != nil {
			return out, failed
		}
		if s.news(chunk, wire) || vendors.HasContent(chunk) {
			out = append(out, chunk)
		}
	}
	if len(wire.Candidates) == 0 {
		if chunk := new(ktmsv1.GenerateTextChunk); s.news(chunk, wire) {
			out = append(out, chunk)
		}
	}
	return out, nil
}

// news adds what is new about the whole answer, and reports whether anything is.
func (s *stream) news(c *ktmsv1.GenerateTextChunk, w *wireResponse) bool {
	news := false
	if s.id == "" && w.ResponseID != "" {
		s.id, c.VendorResponseId, news = w.ResponseID, w.ResponseID, true
	}
	if s.model == "" && w.ModelVersion != "" {
		s.model, c.VendorModel, news = w.ModelVersion, w.ModelVersion, true
	}
	if tier := w.Usage.tier(); tier != "" && s.tier == "" {
		s.tier, c.ServiceTier, news = tier, tier, true
	}
	return news
}

// end is the last chunk, with the usage, and the error that the stream ends in. cause is nil after a clean end, which
// still is an error if a choice has no finish reason: then the vendor broke off. The other way round, a connection that
// was cut after every choice had finished took nothing away.
func (s *stream) end(cause *vendors.Error, cut bool) ([]*ktmsv1.GenerateTextChunk, *vendors.Error) {
	begun, done := 0, 0
	for _, c := range s.choices {
		if c != nil {
			begun++
			if c.finished {
				done++
			}
		}
	}
	switch {
	case cause == nil && begun == 0:
		cause = unavailable(s.target, "the stream ended without an answer")
	case cause == nil && done < begun:
		cause = unavailable(s.target, "the stream ended before the answer did")
	case cut && cause.Kind == vendors.Unavailable && done == begun && done >= s.asked:
		cause = nil
	}
	if s.usage == nil {
		return nil, cause
	}
	return []*ktmsv1.GenerateTextChunk{{Usage: s.usage}}, cause
}
