package gemini

import (
	"strings"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

func streamed(t *testing.T, events ...string) ([]*ktmsv1.GenerateTextChunk, *vendors.Error) {
	t.Helper()
	s := newStream(target("gemini-4-argon"), 1, nil)
	var all []*ktmsv1.GenerateTextChunk
	for _, data := range events {
		chunks, failed := s.take([]byte(data))
		if all = append(all, chunks...); failed != nil {
			last, failed := s.end(failed, false)
			return append(all, last...), failed
		}
	}
	last, failed := s.end(nil, false)
	return append(all, last...), failed
}

// A call that the model could not write is a failure, also after a text, and costs what it cost.
func TestBrokenCallsAfterText(t *testing.T) {
	for reason := range brokenReasons {
		body := `{"candidates":[{"content":{"parts":[{"text":"I will look."}]},"finishReason":"` + reason + `","finishMessage":"why"}],"usageMetadata":{"promptTokenCount":3}}`
		_, failed := decode(target(""), nil, []byte(body))
		if failed == nil || failed.Kind != vendors.Unavailable || failed.Usage.GetInput() != 3 || !strings.Contains(failed.Message, reason+": why") {
			t.Errorf("%s: %v", reason, failed)
		}
		chunks, failed := streamed(t, body)
		if failed == nil || failed.Kind != vendors.Unavailable || len(chunks) == 0 || chunks[len(chunks)-1].GetUsage().GetInput() != 3 {
			t.Errorf("%s: %v %v", reason, chunks, failed)
		}
	}
}

// Some events carry a usage without figures; what was counted before still counts.
func TestAnEmptyUsageIsNone(t *testing.T) {
	chunks, failed := streamed(t, `{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":5}}`,
		`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"trafficType":"ON_DEMAND"}}`, `{"usageMetadata":{"promptTokenCount":0}}`)
	if failed != nil || chunks[len(chunks)-1].GetUsage().GetOutput() != 5 {
		t.Errorf("%v %v", chunks, failed)
	}
}
