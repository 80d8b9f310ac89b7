package clients

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// grpcurl runs the tool of that name, which go.mod pins, as README shows it.
func grpcurl(t *testing.T, arguments ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"tool", "grpcurl", "-plaintext"}, arguments...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("grpcurl %v: %v\n%s", arguments, err, out)
	}
	return string(out)
}

func TestGrpcurl(t *testing.T) {
	w := start(t)
	address := strings.TrimPrefix(w.GRPC, "http://")
	header := "authorization: Bearer " + w.key

	listed := strings.Fields(grpcurl(t, address, "list"))
	if got, want := strings.Join(listed, " "), "ktms.v1.AdminService ktms.v1.GatewayService ktms.v1.NodeRegistryService"; !strings.Contains(got, want) {
		t.Errorf("list: %s", got)
	}
	for symbol, want := range map[string]string{
		"ktms.v1.GatewayService":      "rpc GenerateText ( .ktms.v1.GenerateTextRequest ) returns ( .ktms.v1.GenerateTextResponse );",
		"ktms.v1.GenerateTextRequest": ".ktms.v1.Effort effort = 1",
		"grpc.health.v1.Health":       "rpc Check (",
	} {
		if got := grpcurl(t, address, "describe", symbol); !strings.Contains(got, want) {
			t.Errorf("describe %s does not say %q:\n%s", symbol, want, got)
		}
	}

	const request = `{"effort":"EFFORT_LOW","messages":[{"role":"MESSAGE_ROLE_USER","text":"Say hi in three words."}]}`
	var r struct {
		Choices       []struct{ Text string }
		ResolvedModel string
	}
	answer := grpcurl(t, "-H", header, "-d", request, address, "ktms.v1.GatewayService/GenerateText")
	if err := json.Unmarshal([]byte(answer), &r); err != nil || len(r.Choices) != 1 || r.Choices[0].Text != hello || r.ResolvedModel != good {
		t.Errorf("GenerateText: %s", answer)
	}
	streamed := grpcurl(t, "-H", header, "-d", `{"request":`+request+`}`, address, "ktms.v1.GatewayService/GenerateTextStream")
	if text := deltas(t, streamed); text != hello {
		t.Errorf("GenerateTextStream: %q in %s", text, streamed)
	}
	if got := grpcurl(t, address, "grpc.health.v1.Health/Check"); !strings.Contains(got, "SERVING") {
		t.Errorf("health: %s", got)
	}
}

// deltas joins the text of the chunks that grpcurl prints one after another.
func deltas(t *testing.T, printed string) (text string) {
	t.Helper()
	for decoder := json.NewDecoder(strings.NewReader(printed)); decoder.More(); {
		var chunk struct{ Delta string }
		if err := decoder.Decode(&chunk); err != nil {
			t.Fatalf("%v in %s", err, printed)
		}
		text += chunk.Delta
	}
	return text
}
