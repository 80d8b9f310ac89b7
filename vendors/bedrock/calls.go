package bedrock

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// toolUse is a call in the history, and its result once it came.
type toolUse struct {
	id, wireID string // the caller's and ours
	name       string // on the wire
	result     []types.ContentBlock
}

// waiting are the calls of one id that have no result yet, in the last turn that has such calls.
type waiting struct {
	turn *turn
	open []*toolUse
}

func (e *encoder) call(path string, c *ktmsv1.ToolCall) types.ContentBlock {
	if !e.Carries(vendors.ToolCalls, true) || c.GetType() == "custom" && !e.Carries(vendors.ToolCallType, true) {
		return nil
	}
	if point, _ := e.extras(path, c.GetExtraJson()); point != nil {
		e.Drop(cacheControl)
	}
	use := &toolUse{id: c.GetId(), wireID: e.wireID(c.GetId()), name: e.wireName(c.GetName())}
	turn := e.assistant()
	turn.calls = append(turn.calls, use)
	w := e.calls[use.id]
	if w == nil || w.turn != turn {
		w = &waiting{turn: turn}
		e.calls[use.id] = w
	}
	w.open = append(w.open, use)
	return &types.ContentBlockMemberToolUse{Value: types.ToolUseBlock{
		ToolUseId: &use.wireID, Name: &use.name, Input: newDocument(e.arguments(path, c.GetArguments())),
	}}
}

func (e *encoder) arguments(path, text string) json.RawMessage {
	if blank(text) {
		return json.RawMessage("{}") // a function without parameters
	}
	if _, err := openaiapi.ParseMembers([]byte(text)); err != nil {
		// Arguments that were cut are text to other vendors.
		e.Refuse(path+".arguments", "it is not a JSON object")
	}
	return json.RawMessage(text)
}

// result keeps a result for the turn after its call. Some vendors count their calls anew in each answer, so that an id may
// come again: a result belongs to the first call of the last turn that has none.
func (e *encoder) result(path string, m *ktmsv1.Message, point *types.CachePointBlock, failed bool) {
	id := m.GetToolCallId()
	known := e.calls[id]
	switch {
	case known == nil:
		e.Wrong("messages.tool_call_id", fmt.Sprintf("%q answers no call before it", id))
		return
	case len(known.open) == 0:
		e.Wrong("messages.tool_call_id", fmt.Sprintf("the call %q is answered twice", id))
		return
	}
	use := known.open[0]
	known.open = known.open[1:]
	block := types.ToolResultBlock{ToolUseId: &use.wireID}
	if failed {
		block.Status = types.ToolResultStatusError
	}
	var inner *types.CachePointBlock // within a result there is no place for one
	for _, b := range e.content(path, m, inResults) {
		switch b := b.(type) {
		case *types.ContentBlockMemberText:
			block.Content = append(block.Content, &types.ToolResultContentBlockMemberText{Value: b.Value})
		case *types.ContentBlockMemberImage:
			block.Content = append(block.Content, &types.ToolResultContentBlockMemberImage{Value: b.Value})
		case *types.ContentBlockMemberDocument:
			block.Content = append(block.Content, &types.ToolResultContentBlockMemberDocument{Value: b.Value})
		case *types.ContentBlockMemberCachePoint:
			inner = &b.Value
		}
	}
	if block.Content == nil {
		block.Content = []types.ToolResultContentBlock{&types.ToolResultContentBlockMemberText{Value: placeholder}}
	}
	if point == nil {
		point = inner
	}
	use.result = e.withPoint([]types.ContentBlock{&types.ContentBlockMemberToolResult{Value: block}}, point)
	e.user() // what comes after a result is another turn than its call's
}

const (
	// maxName and maxID are the vendor's limits for the names of tools and the ids of calls.
	maxName = 64
	maxID   = 64
	// digestLength of hexadecimal digits keep rewritten names and ids apart: 2^40 leaves no room for chance in one request.
	digestLength = 10
)

var (
	word    = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	nonWord = regexp.MustCompile(`[^a-zA-Z0-9_-]`)
)

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:digestLength]
}

// wireID rewrites an id that the vendor does not take, and one that the conversation has already.
func (e *encoder) wireID(id string) string {
	wire := id
	for len(wire) > maxID || !word.MatchString(wire) || e.wireIDs[wire] {
		// The numbers before were taken, however often the id comes.
		wire = "call_" + digest(fmt.Sprintf("%s#%d", id, e.repeats[id]))
		e.repeats[id]++
	}
	e.wireIDs[wire] = true
	return wire
}

// wireName rewrites the name of a tool that the vendor does not take. The answer's names are turned back.
func (e *encoder) wireName(name string) string {
	if len(name) <= maxName && word.MatchString(name) {
		return name
	}
	wire := nonWord.ReplaceAllString(name, "_")
	wire = wire[:min(len(wire), maxName-1-digestLength)] + "_" + digest(name)
	if e.done.names == nil {
		e.done.names = map[string]string{}
	}
	e.done.names[wire] = name
	return wire
}
