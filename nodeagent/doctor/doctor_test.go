package doctor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectinprocess"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/nodeagent/engine"
	"github.com/ai-process/ktms/nodeagent/registry"
)

// gateway answers every vetting with one error, or refuses some models.
type gateway struct {
	ktmsv1connect.UnimplementedNodeRegistryServiceHandler
	err     error
	refused []string
	// uncatalogued are the models that the catalogue lacks.
	uncatalogued []string
	// closed is why it refuses endpoints, and asked the last one that it was asked about.
	closed, asked string
}

func (g *gateway) VetModels(_ context.Context, r *ktmsv1.VetModelsRequest) (*ktmsv1.VetModelsResponse, error) {
	resp := &ktmsv1.VetModelsResponse{EndpointProblem: g.closed}
	g.asked = r.Endpoint
	for _, m := range r.Models {
		v := &ktmsv1.ModelVerdict{Model: m, Allowed: true}
		for _, no := range g.refused {
			if no == m {
				v = &ktmsv1.ModelVerdict{Model: m, Reason: `model "` + m + `" not permitted for this node key`}
			}
		}
		v.InCatalogue = !slices.Contains(g.uncatalogued, m)
		resp.Verdicts = append(resp.Verdicts, v)
	}
	return resp, g.err
}

func (g *gateway) client() registry.Client {
	server := connect.NewServer()
	ktmsv1connect.RegisterNodeRegistryServiceHandler(server, g)
	return ktmsv1connect.NewNodeRegistryServiceClient(connect.NewClient(connectinprocess.New(server)))
}

// site is an engine's pages by their paths; a missing page is a 404.
type site map[string]string

func (s site) open(t *testing.T, kind string) (engine.Engine, string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, found := s[r.URL.Path]
		if !found {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, page)
	}))
	t.Cleanup(server.Close)
	return openAt(t, kind, server.URL), server.URL
}

func openAt(t *testing.T, kind, url string) engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Options{Kind: kind, URL: url})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

const (
	tags   = `{"models":[{"name":"a:latest"},{"name":"b:1"}]}`
	loaded = `{"models":[{"name":"a:latest","size":100,"size_vram":100}]}`
)

func ollama(ps string) site { return site{"/api/tags": tags, "/api/ps": ps, "/api/show": "{}"} }

// mac answers as an Apple Silicon machine that runs an Ollama at path.
func mac(path string) func(context.Context, string, ...string) ([]byte, error) {
	return func(_ context.Context, name string, _ ...string) ([]byte, error) {
		switch name {
		case "sysctl":
			return []byte("1\n"), nil
		case "ps":
			return []byte("/sbin/launchd\n" + path + "\nollama\n"), nil
		}
		return nil, exec.ErrNotFound
	}
}

// program writes the head of a Mac program for one or several processors.
func program(t *testing.T, cpus ...uint32) string {
	t.Helper()
	var out bytes.Buffer
	head := func(cpu uint32) []byte {
		var b bytes.Buffer
		binary.Write(&b, binary.LittleEndian, []uint32{0xfeedfacf, cpu, 0, 2, 0, 0, 0, 0})
		return b.Bytes()
	}
	if len(cpus) == 1 {
		out.Write(head(cpus[0]))
	} else {
		binary.Write(&out, binary.BigEndian, []uint32{0xcafebabe, uint32(len(cpus))})
		for i, cpu := range cpus {
			binary.Write(&out, binary.BigEndian, []uint32{cpu, 0, uint32(4096 * (i + 1)), 32, 12})
		}
		for i, cpu := range cpus {
			out.Write(make([]byte, 4096*(i+1)-out.Len()))
			out.Write(head(cpu))
		}
	}
	path := filepath.Join(t.TempDir(), "ollama")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	intel = 0x01000007
	arm   = 0x0100000c
)

// errBlocked is what a machine without a network says to every dial.
var errBlocked = errors.New("i/o timeout")

// examination is one state of a node, and what the doctor says of it.
type examination struct {
	name   string
	kind   string
	site   site
	change func(*testing.T, *Options, *gateway)
	// want are parts of lines, and problems how many lines are problems.
	want     string
	problems int
}

// examine lets the doctor look at each state.
func examine(t *testing.T, states []examination) {
	t.Helper()
	for _, c := range states {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := &gateway{}
			o := Options{
				NodeID: "n", Kind: c.kind, Target: registry.Target{Host: "gateway.example.com:9090"}, Registry: g.client(),
				Machine: Machine{
					OS: "linux", Now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
					Run:  func(context.Context, string, ...string) ([]byte, error) { return nil, exec.ErrNotFound },
					Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errBlocked },
					GPUs: func(context.Context) []*ktmsv1.NodeGPU { return nil },
				},
			}
			o.Engine, o.EngineURL = c.site.open(t, c.kind)
			if c.change != nil {
				c.change(t, &o, g)
			}
			var out strings.Builder
			problems := Examine(t.Context(), o, &out)
			if problems != c.problems || strings.Count(out.String(), "PROBLEM") != c.problems {
				t.Errorf("%d problems, want %d:\n%s", problems, c.problems, out.String())
			}
			for want := range strings.SplitSeq(c.want, "|") {
				if !strings.Contains(out.String(), want) {
					t.Errorf("nothing says %q:\n%s", want, out.String())
				}
			}
		})
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "schedule")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// tunnel is a machine on which a tunnel comes up.
func tunnel(o *Options) {
	o.Cloudflared = "cloudflared"
	o.Machine.Run = func(_ context.Context, name string, args ...string) ([]byte, error) {
		if name != "cloudflared" || len(args) != 1 || args[0] != "--version" {
			return nil, errors.New("not asked for")
		}
		return []byte("cloudflared version 1 (built today)\n"), nil
	}
	o.Machine.Dial = func(context.Context, string, string) (net.Conn, error) {
		a, _ := net.Pipe()
		return a, nil
	}
}
