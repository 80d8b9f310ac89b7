package clients

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/store/storetest"
)

// The well-known keys of "ktms-server dev", and the model that it offers when it finds no other.
const (
	devKey   = "ktms_dev_default_key"
	devAdmin = "dev-bootstrap"
	demo     = "demo-echo"
)

// readyTimeout bounds a start, which looks around for local engines; stopTimeout an end without calls in flight.
const (
	readyTimeout = 20 * time.Second
	stopTimeout  = 10 * time.Second
)

// output is what a program has printed so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// program is a running "ktms-server dev".
type program struct {
	http, grpc string
	stop       func()
}

var (
	httpLine = regexp.MustCompile(`OpenAI-compatible API +(http://\S+)/v1`)
	grpcLine = regexp.MustCompile(`gRPC, gRPC-Web, Connect +(\S+)`)
)

// startDev runs the binary in a folder with nothing in its environment but free ports, as printed once it listens.
func startDev(t *testing.T, binary, folder string) *program {
	t.Helper()
	printed := &output{}
	cmd := exec.Command(binary, "dev")
	cmd.Dir = folder
	cmd.Env = []string{"HTTP_ADDR=127.0.0.1:0", "GRPC_ADDR=127.0.0.1:0", "METRICS_ADDR=127.0.0.1:0"}
	cmd.Stdout, cmd.Stderr = printed, printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	p := &program{}
	p.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("dev ended with: %v\n%s", err, printed)
			}
		case <-time.After(stopTimeout):
			_ = cmd.Process.Kill()
			t.Errorf("dev did not stop within %s:\n%s", stopTimeout, printed)
		}
	})
	t.Cleanup(p.stop)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("dev printed:\n%s", printed)
		}
	})
	storetest.Eventually(t, readyTimeout, "dev is ready", func() bool {
		doorHTTP, doorGRPC := httpLine.FindStringSubmatch(printed.String()), grpcLine.FindStringSubmatch(printed.String())
		if doorHTTP == nil || doorGRPC == nil {
			return false
		}
		p.http, p.grpc = doorHTTP[1], doorGRPC[1]
		resp, err := http.Get(p.http + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

func TestDev_FirstCallsAndASecondStart(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "ktms-server")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/ktms-server")
	build.Dir = filepath.Join("..", "..", "..") // the product's own module, with its own versions
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	folder := t.TempDir()
	first := startDev(t, binary, folder)
	model := demoModel(t, first)
	demoCalls(t, first, devKey, model)
	runNode(t, "dev.test.mjs", "KTMS_URL="+first.http+"/v1", "KTMS_KEY="+devKey, "KTMS_MODEL="+model)

	minted := &ktmsv1.MintAPIKeyResponse{}
	if err := dial(t, first.grpc).Invoke(as(t.Context(), devAdmin), "/ktms.v1.AdminService/MintAPIKey",
		&ktmsv1.MintAPIKeyRequest{Name: "kept", Scopes: []string{"generate"}}, minted); err != nil {
		t.Fatal(err)
	}
	demoCalls(t, first, minted.GetPlainKey(), model)
	first.stop()

	second := startDev(t, binary, folder)
	demoCalls(t, second, minted.GetPlainKey(), model)
	demoCalls(t, second, devKey, model)
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 || entries[0].Name() != ".ktms" {
		t.Errorf("dev left %v in its folder (%v), want .ktms alone", entries, err)
	}
}

// demoModel is how to ask for the demonstration model: auto, as README does, or by name where this machine runs an
// engine that dev prefers.
func demoModel(t *testing.T, p *program) string {
	t.Helper()
	client := official(p.http, devKey)
	list, err := client.Models.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	isDemo := func(m openai.Model) bool { return m.ID == demo }
	if len(list.Data) == 1 && isDemo(list.Data[0]) {
		return "auto"
	}
	if !slices.ContainsFunc(list.Data, isDemo) {
		if err := dial(t, p.grpc).Invoke(as(t.Context(), devAdmin), "/ktms.v1.AdminService/UpsertModel", &ktmsv1.UpsertModelRequest{
			Model: &ktmsv1.ModelSpec{Id: demo, Vendor: "demo", Enabled: true}}, &ktmsv1.UpsertModelResponse{}); err != nil {
			t.Fatal(err)
		}
	}
	return demo
}

// demoCalls makes a newcomer's first calls.
func demoCalls(t *testing.T, p *program, key, model string) {
	t.Helper()
	client := official(p.http, key)
	r, err := client.Chat.Completions.New(t.Context(), ask(model, "hi"))
	if err != nil || !strings.HasSuffix(r.Choices[0].Message.Content, "You said: hi") || r.Model != demo {
		t.Fatalf("unary: %+v, %v", r, err)
	}
	params := ask(model, "hi")
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	whole := accumulate(t, client.Chat.Completions.NewStreaming(t.Context(), params))
	if !strings.HasSuffix(whole.Choices[0].Message.Content, "You said: hi") || whole.Usage.TotalTokens == 0 {
		t.Errorf("stream: %+v", whole)
	}
	params = withTools(ask(model, "hi"))
	turn := accumulate(t, client.Chat.Completions.NewStreaming(t.Context(), params)).Choices[0].Message
	if len(turn.ToolCalls) != 1 || turn.ToolCalls[0].Function.Name != "weather" || turn.ToolCalls[0].Function.Arguments != "{}" {
		t.Fatalf("tools: %+v", turn)
	}
	params.Messages = append(params.Messages, turn.ToParam(), openai.ToolMessage("sunny", turn.ToolCalls[0].ID))
	r, err = client.Chat.Completions.New(t.Context(), params)
	if err != nil || !strings.HasSuffix(r.Choices[0].Message.Content, "sunny") {
		t.Errorf("the second turn: %+v, %v", r, err)
	}
	var rpc ktmsv1.GenerateTextResponse
	if err := dial(t, p.grpc).Invoke(as(t.Context(), key), generateText, textRequest(demo, "hi"), &rpc); err != nil || rpc.GetResolvedModel() != demo {
		t.Errorf("gRPC: %v, %v", &rpc, err)
	}
}
