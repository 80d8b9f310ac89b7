package admit

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// The error of the estimate on sample texts, against the counts of two public tokenizers. It has to lean to the high
// side of the newer one, and not by much: a reservation that is far too large refuses calls that would fit.
func TestEstimateOnSamples(t *testing.T) {
	file, err := os.Open("testdata/tokens.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var s struct {
			Name, Text    string
			O200k, Cl100k int64
		}
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		var c Counter
		c.Add(s.Text)
		got := c.Tokens()
		t.Logf("%-14s %3d tokens estimated, %3d (%+4d%%) and %3d counted", s.Name, got, s.O200k, (got-s.O200k)*100/s.O200k, s.Cl100k)
		if got*100 < s.O200k*92 || got > s.O200k*2+5 {
			t.Errorf("%s: %d tokens, counted %d", s.Name, got, s.O200k)
		}
		var pieces Counter
		for _, r := range s.Text {
			pieces.Add(string(r))
		}
		if pieces.Tokens() != got {
			t.Errorf("%s: %d in pieces, %d whole", s.Name, pieces.Tokens(), got)
		}
	}
}

func TestEstimateInput(t *testing.T) {
	text := func(s string) *ktmsv1.Message { return &ktmsv1.Message{Text: s} }
	part := func(p *ktmsv1.ContentPart) *ktmsv1.Message { return &ktmsv1.Message{Parts: []*ktmsv1.ContentPart{p}} }
	for _, c := range []struct {
		name string
		req  *ktmsv1.GenerateTextRequest
		want int64
	}{
		{"nothing", &ktmsv1.GenerateTextRequest{}, 0},
		{"text", &ktmsv1.GenerateTextRequest{BaseSystemInstruction: "abcd", RequestInstruction: "abcd", Messages: []*ktmsv1.Message{text("abcd")}}, 4 + perMessage},
		{"an image", &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{part(&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Image{}})}}, perMessage + perImage},
		{"a document of two pages", &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{part(&ktmsv1.ContentPart{Part: &ktmsv1.ContentPart_Document{
			Document: &ktmsv1.DocumentPart{Source: &ktmsv1.DocumentPart_Data{Data: make([]byte, pageBytes+1)}}}})}}, perMessage + 2*perPage},
		{"a tool", &ktmsv1.GenerateTextRequest{Tools: []*ktmsv1.Tool{{Name: "abcd", ParametersJson: "abcdabcd"}}}, perTool + 4},
		{"a call", &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{{ToolCalls: []*ktmsv1.ToolCall{{Name: "abcd", Arguments: "abcd"}}}}}, 2*perMessage + 3},
	} {
		if got := EstimateInput(c.req); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if got := EstimateEmbeddings(&ktmsv1.GetEmbeddingsRequest{Inputs: []string{"abcd", "ab"}}); got != 3 {
		t.Errorf("embeddings: %d", got)
	}
	if got := EstimateEmbeddings(&ktmsv1.GetEmbeddingsRequest{TokenInputs: []*ktmsv1.TokenInput{{Tokens: []int32{1, 2, 3}}}}); got != 3 {
		t.Errorf("tokens: %d", got)
	}
}

func BenchmarkCounter(b *testing.B) {
	text := strings.Repeat("Keystone decides by rules which model answers. ", 100)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		var c Counter
		c.Add(text)
	}
}
