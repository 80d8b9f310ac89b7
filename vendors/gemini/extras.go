package gemini

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/ai-process/ktms/vendors/openaiapi"
)

// extras gathers what Choice has no field for, as members of extra_json: pictures, parts of kinds that are not known,
// and what the answer is grounded in.
type extras struct {
	images, parts []byte // elements of lists, each with a comma before it
	further       openaiapi.Members
}

func (x *extras) empty() bool { return x.images == nil && x.parts == nil }

// media takes a picture as a part of the OpenAI API. Anything else stays as it came.
func (x *extras) media(m *wireInline, raw json.RawMessage) {
	if !strings.HasPrefix(m.MIME, "image/") {
		x.part(raw)
		return
	}
	x.images = append(x.images, `,{"type":"image_url","image_url":{"url":`...)
	x.images = openaiapi.AppendString(x.images, "data:"+m.MIME+";base64,"+m.Data)
	x.images = append(x.images, `}}`...)
}

func (x *extras) part(raw json.RawMessage) {
	if string(raw) == "null" || string(raw) == "{}" {
		return
	}
	x.parts = append(append(x.parts, ','), plain(raw)...)
}

// isGrounding reports whether a groundingMetadata says anything.
func isGrounding(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && string(raw) != "null" && string(raw) != "{}"
}

// ground adds what the answer is grounded in: as it came, and the pages as citations of the OpenAI API. Which bytes of
// the text they stand for is in the former.
func (x *extras) ground(raw json.RawMessage) {
	if raw == nil {
		return
	}
	x.further.Add("grounding_metadata", json.RawMessage(plain(raw)))
	var wire struct {
		Chunks []struct {
			Web *struct {
				URI   string `json:"uri"`
				Title string `json:"title"`
			} `json:"web"`
		} `json:"groundingChunks"`
	}
	if json.Unmarshal(raw, &wire) != nil {
		return
	}
	var list []byte
	for _, c := range wire.Chunks {
		if c.Web == nil || c.Web.URI == "" {
			continue
		}
		list = append(list, `,{"type":"url_citation","url_citation":{"start_index":0,"end_index":0,"url":`...)
		list = openaiapi.AppendString(list, c.Web.URI)
		list = append(list, `,"title":`...)
		list = append(openaiapi.AppendString(list, c.Web.Title), `}}`...)
	}
	if list != nil {
		x.further.Add("annotations", listOf(list))
	}
}

// listOf makes a list of elements that each have a comma before them.
func listOf(elements []byte) json.RawMessage {
	return append(append([]byte{'['}, elements[1:]...), ']')
}

func (x *extras) json() string {
	out := make(openaiapi.Members, 0, 2+len(x.further))
	if x.images != nil {
		out.Add("images", listOf(x.images))
	}
	if x.parts != nil {
		out.Add("content_parts", listOf(x.parts))
	}
	return append(out, x.further...).JSON()
}

// wireLogprobs is the vendor's account of the tokens.
type wireLogprobs struct {
	Chosen []wireToken `json:"chosenCandidates"`
	Top    []struct {
		Candidates []wireToken `json:"candidates"`
	} `json:"topCandidates"`
}

type wireToken struct {
	Token   string      `json:"token"`
	Logprob json.Number `json:"logProbability"`
}

// openai says the same in the shape of the OpenAI API; "" if there is nothing.
func (l *wireLogprobs) openai() string {
	if l == nil || len(l.Chosen) == 0 {
		return ""
	}
	w := &writer{}
	w.group('{', '}', func() {
		w.array("content", func() {
			for i := range l.Chosen {
				w.group('{', '}', func() {
					l.Chosen[i].write(w)
					w.array("top_logprobs", func() {
						if i >= len(l.Top) {
							return
						}
						for _, token := range l.Top[i].Candidates {
							w.group('{', '}', func() { token.write(w) })
						}
					})
				})
			}
		})
		w.raw("refusal", []byte("null"))
	})
	return string(w.buf)
}

func (t *wireToken) write(w *writer) {
	w.text("token", t.Token)
	value := t.Logprob.String()
	if value == "" { // a zero is left out on the wire
		value = "0"
	}
	w.raw("logprob", []byte(value))
	w.raw("bytes", []byte("null"))
}
