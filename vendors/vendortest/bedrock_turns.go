package vendortest

import (
	"fmt"
	"slices"
)

func (r *bedrockRequest) messages(path string, v any) {
	r.list(1, r.object(map[string]check{"*role": r.enum("user", "assistant"), "*content": r.list(1, r.block)}))(path, v)
	items, _ := v.([]any)
	role, open := "assistant", []string(nil)
	for i, item := range items {
		m, _ := item.(map[string]any)
		at := fmt.Sprintf("%s[%d]", path, i)
		if m["role"] == role {
			r.no(at, "roles must alternate, and the first is the user's")
		}
		role, _ = m["role"].(string)
		content, _ := m["content"].([]any)
		open = r.turn(at, role, content, open)
	}
	if open != nil {
		r.no(path, "tool use %s has no result", open[0])
	}
	if role != "user" {
		r.no(path, "the conversation must end with a user message")
	}
}

// turn checks what a role may say, and in which order. open are the calls of the turn before; it returns those of this.
func (r *bedrockRequest) turn(path, role string, content []any, open []string) []string {
	var calls, answered []string
	kinds := map[string]bool{}
	last := ""
	for _, item := range content {
		block, _ := item.(map[string]any)
		for kind, value := range block {
			inner, _ := value.(map[string]any)
			id, _ := inner["toolUseId"].(string)
			switch kind {
			case "toolUse":
				calls = append(calls, id)
				if r.toolUses[id] {
					r.no(path, "tool use ids must be unique: %s", id)
				}
				r.toolUses[id] = true
			case "toolResult":
				if !slices.Contains(open, id) || slices.Contains(answered, id) {
					r.no(path, "unexpected tool result %s", id)
				}
				answered = append(answered, id)
				if kinds["text"] || kinds["image"] || kinds["document"] {
					r.no(path, "tool results come first")
				}
			}
			ofUser := kind == "toolResult" || kind == "image" || kind == "document" || kind == "audio" || kind == "video"
			ofAssistant := kind == "toolUse" || kind == "reasoningContent"
			if role == "assistant" && ofUser || role == "user" && ofAssistant {
				r.no(path, "%s does not belong into a turn of the %s", kind, role)
			}
			kinds[kind] = true
			last = kind
		}
	}
	for _, id := range open {
		if !slices.Contains(answered, id) {
			r.no(path, "tool use %s has no result in the next turn", id)
		}
	}
	if kinds["document"] && !kinds["text"] {
		r.no(path, "a document needs a text beside it")
	}
	if last == "reasoningContent" {
		r.no(path, "the final block of a turn cannot be reasoning")
	}
	r.usesTools = r.usesTools || len(calls) > 0 || len(answered) > 0
	return calls
}

func (r *bedrockRequest) block(path string, v any) {
	members := map[string]check{
		"text":       r.words,
		"image":      r.object(map[string]check{"*format": r.enum("png", "jpeg", "gif", "webp"), "*source": r.source()}),
		"document":   r.document,
		"cachePoint": r.point,
		"toolUse": r.object(map[string]check{
			"*toolUseId": r.text(bedrockID), "*name": r.text(bedrockID), "*input": r.free}),
		"toolResult": r.object(map[string]check{
			"*toolUseId": r.text(bedrockID), "status": r.enum("success", "error"),
			"*content": r.list(1, r.union(map[string]check{
				"text": r.words, "json": r.free, "document": r.document,
				"image": r.object(map[string]check{"*format": r.enum("png", "jpeg", "gif", "webp"), "*source": r.source()}),
			}))}),
		"reasoningContent": r.union(map[string]check{
			"reasoningText":   r.object(map[string]check{"*text": func(string, any) {}, "*signature": r.text(nil)}),
			"redactedContent": r.bytes,
		}),
	}
	if !r.claude {
		members["audio"] = r.object(map[string]check{"*format": r.enum("mp3", "opus", "wav", "aac", "flac", "mp4", "ogg", "mkv", "mka",
			"x-aac", "m4a", "mpeg", "mpga", "pcm", "webm"), "*source": r.source()})
	}
	r.union(members)(path, v)
}

// free is an object of any members.
func (r *bedrockRequest) free(path string, v any) {
	if _, ok := v.(map[string]any); !ok {
		r.no(path, "expected an object")
	}
}

func (r *bedrockRequest) document(path string, v any) {
	r.object(map[string]check{
		"*name": r.text(bedrockDocument), "*source": r.source(),
		"*format": r.enum("pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"),
	})(path, v)
	o, _ := v.(map[string]any)
	name, _ := o["name"].(string)
	if len(name) > 200 || slices.Contains(r.documents, name) {
		r.no(path, "document names are unique and short: %q", name)
	}
	r.documents = append(r.documents, name)
}
