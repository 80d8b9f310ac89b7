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

func TestExamine(t *testing.T) {
	t.Parallel()
	blocked := errors.New("i/o timeout")
	for _, c := range []struct {
		name   string
		kind   string
		site   site
		change func(*testing.T, *Options, *gateway)
		// want are parts of lines, and problems how many lines are problems.
		want     string
		problems int
	}{
		{"all is well", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) { o.Model = "a" }, "ok       model a is loaded|no problem found|note     model b:1 is not loaded", 0},
		{"no engine", engine.Ollama, nil, func(t *testing.T, o *Options, _ *gateway) {
			o.EngineURL = "http://127.0.0.1:1"
			o.Engine = openAt(t, engine.Ollama, o.EngineURL)
		}, "does not answer at http://127.0.0.1:1|ollama serve|connection refused", 1},
		{"another engine", engine.Ollama, site{"/v1/models": `{"data":[]}`}, nil, "does not answer|status 404", 1},
		{"model missing", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) { o.Model = "c" }, "lacks the model c: ollama pull c", 1},
		{"model not loaded", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) { o.Model = "b:1" }, "model b:1 is not loaded, so|ollama run b:1", 1},
		{"model not loaded in a pause", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.Model, o.ScheduleFile = "b:1", file(t, "00:00-24:00 0")
		}, "schedule: now 0%, no switch|as the schedule has the node paused", 0},
		{"schedule not valid", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.ScheduleFile = file(t, "00:00-12:00 0\n11:00-13:00 0")
		}, "line 2 overlaps line 1", 1},
		{"schedule missing", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.ScheduleFile = filepath.Join(t.TempDir(), "none")
		}, "no such file", 1},
		{"model not reported", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) {
			o.Model, o.Selection.Only = "a", []string{"b:1"}
		}, "does not report the model a", 1},
		{"named models missing", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) {
			o.Selection = engine.Selection{Only: []string{"c"}, Judges: []string{"d"}}
		}, "lacks the model c that|lacks the model d that|no model to report", 3},
		{"on the CPU", engine.Ollama, ollama(`{"models":[{"name":"a:latest","size":100,"size_vram":0}]}`), nil, "a:latest runs on the CPU|nvidia-smi", 1},
		{"partly on the CPU", engine.Ollama, ollama(`{"models":[{"name":"a:latest","size":100,"size_vram":75}]}`), nil, "note     25% of model a:latest", 0},
		{"Intel build on a Mac", engine.Ollama, ollama(`{"models":[]}`), func(t *testing.T, o *Options, _ *gateway) {
			o.Machine.OS, o.Machine.Run = "darwin", mac(program(t, intel))
		}, "is an Intel build|Rosetta", 1},
		{"Apple Silicon build on a Mac", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.Machine.OS, o.Machine.Run = "darwin", mac(program(t, arm))
		}, "no problem found", 0},
		{"build for both on a Mac", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.Machine.OS, o.Machine.Run = "darwin", mac(program(t, intel, arm))
		}, "no problem found", 0},
		{"engine that loads", engine.LlamaCPP, site{"/v1/models": `{"data":[{"id":"a"}]}`}, func(t *testing.T, o *Options, _ *gateway) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusServiceUnavailable)
				io.WriteString(w, `{"error":{"code":503,"message":"Loading model"}}`)
			}))
			t.Cleanup(s.Close)
			o.Engine = openAt(t, engine.LlamaCPP, s.URL)
		}, "but it is not ready: Loading model|wait until", 1},
		{"no metrics", engine.LlamaCPP, site{"/v1/models": `{"data":[{"id":"a"}]}`}, nil, "note     the engine does not tell how busy it is: start llama-server with --metrics", 0},
		{"metrics", engine.VLLM, site{"/v1/models": `{"data":[{"id":"a"}]}`, "/metrics": "vllm:num_requests_running 2\nvllm:num_requests_waiting 1\n"}, nil, "runs 2 requests, and 1 wait", 0},
		{"one of each", engine.VLLM, site{"/v1/models": `{"data":[{"id":"a","owned_by":"vllm"}]}`, "/metrics": "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n"}, nil,
			"with 1 model\n|runs 1 request, and 0 wait|no problem found", 0},
		{"vLLM without metrics", engine.VLLM, site{"/v1/models": `{"data":[{"id":"a","owned_by":"vllm"}]}`}, nil, "note     the engine does not tell how busy it is: start vLLM without", 0},
		{"Ollama called vLLM", engine.VLLM, site{"/": "Ollama is running", "/v1/models": `{"data":[{"id":"a","owned_by":"library"}]}`}, nil,
			"PROBLEM  the engine at http|is ollama, not vllm: give --engine ollama", 1},
		{"vLLM called llama.cpp", engine.LlamaCPP, site{"/v1/models": `{"data":[{"id":"a","owned_by":"vllm"}]}`}, nil, "is vllm, not llamacpp: give --engine vllm", 1},
		{"a nobody called vLLM", engine.VLLM, site{"/v1/models": `{"data":[{"id":"a"}]}`}, nil, "PROBLEM  the engine at http|has no metrics of vLLM", 1},
		{"vLLM called generic", engine.Generic, site{"/v1/models": `{"data":[{"id":"a","owned_by":"vllm"}]}`}, nil, "no problem found", 0},

		{"gateway away", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) {
			g.err = connect.NewError(connect.CodeUnavailable, "restarting")
		}, "answered with an error: restarting", 1},
		{"gateway behind TLS", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, g *gateway) {
			g.err = connect.NewError(connect.CodeUnavailable, "unexpected EOF")
			s := httptest.NewTLSServer(http.NotFoundHandler())
			t.Cleanup(s.Close)
			o.Target.Host = s.Listener.Addr().String()
			o.Machine.Dial = (&net.Dialer{}).DialContext
		}, "speaks TLS: add --tls", 1},
		{"key wrong", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) {
			g.err = connect.NewError(connect.CodeUnauthenticated, "invalid key")
		}, "does not accept the node key (invalid key)", 1},
		{"key of another node", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) {
			g.err = connect.NewError(connect.CodePermissionDenied, `key belongs to node "x"`)
		}, `key belongs to node "x"|minted for`, 1},
		{"no node pool", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) {
			g.err = connect.NewError(connect.CodeUnimplemented, "no")
		}, "gRPC port (9090", 1},
		{"one model not allowed", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) { g.refused = []string{"b:1"} },
			`note     model "b:1" not permitted|allows 1 of`, 0},
		{"one spelling not allowed", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) { g.refused = []string{"a:latest"} }, "allows 2 of", 0},
		{"the named model not allowed", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, g *gateway) {
			o.Selection.Only, g.refused = []string{"a", "b:1"}, []string{"b:1"}
		}, `PROBLEM  model "b:1" not permitted for this node key|--only-model`, 1},
		{"no model allowed", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) { g.refused = []string{"a", "a:latest", "b:1"} },
			`PROBLEM  model "a:latest" not permitted|PROBLEM  model "b:1" not permitted`, 2},

		{"endpoint of the wrong machine", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) { o.Endpoint = "http://localhost:11434/v1" },
			"the gateway's own machine", 1},
		{"no model in the catalogue", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) { g.uncatalogued = []string{"a", "a:latest", "b:1"} },
			"PROBLEM  no request reaches the model a:latest, since the catalogue lacks it: an administrator adds it with UpsertModel, vendor local, " +
				"under exactly the id a:latest or a\n|PROBLEM  no request reaches the model b:1", 2},
		{"one model not in the catalogue", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) { g.uncatalogued = []string{"a:latest", "b:1"} },
			"note     no request reaches the model b:1|the catalogue has 1 of|no problem found", 0},
		{"a named model not in the catalogue", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, g *gateway) {
			o.Selection.Only, g.uncatalogued = []string{"a", "b:1"}, []string{"b:1"}
		}, "PROBLEM  no request reaches the model b:1|exactly the id b:1, as --only-model spells it", 1},
		{"a model neither allowed nor in the catalogue", engine.Ollama, ollama(loaded), func(_ *testing.T, _ *Options, g *gateway) {
			g.refused, g.uncatalogued = []string{"b:1"}, []string{"b:1"}
		}, `note     model "b:1" not permitted|the catalogue has 1 of`, 0},

		{"endpoint on loopback", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, g *gateway) {
			o.Endpoint, o.Target.Host = "http://127.0.0.1:11434/v1", "127.0.0.1:9090"
			t.Cleanup(func() {
				if g.asked != o.Endpoint {
					t.Errorf("the gateway was asked about the endpoint %q", g.asked)
				}
			})
		}, "ok       the gateway takes the endpoint http://127.0.0.1:11434/v1|no problem found", 0},
		{"endpoint refused", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, g *gateway) {
			o.Endpoint, g.closed = "http://10.0.0.1:11434/v1", "not allowed for this key"
		}, "PROBLEM  the gateway would refuse the endpoint http://10.0.0.1:11434/v1: not allowed for this key", 1},
		{"endpoint on loopback without the gateway's word", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, g *gateway) {
			o.Endpoint, o.Target.Host = "http://127.0.0.1:11434/v1", "127.0.0.1:9090"
			g.err = connect.NewError(connect.CodeUnimplemented, "no")
		}, "note     the endpoint is a loopback address", 1},
		{"private endpoint without the gateway's word", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, g *gateway) {
			o.Endpoint, g.err = "http://10.0.0.1:11434/v1", connect.NewError(connect.CodeUnimplemented, "no")
		}, "note     the endpoint is a private address, so the node key's allowed_cidrs", 1},
		{"endpoint on another port of this machine", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.Endpoint, o.Target.Host = "http://127.0.0.1:1/v1", "127.0.0.1:9090"
			o.Reachable = openAt(t, engine.Generic, "http://127.0.0.1:1")
		}, "nothing answers at the endpoint http://127.0.0.1:1/v1: give the address of the engine, like http://127.0.0.1:", 1},
		{"endpoint that nobody serves", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.Endpoint, o.Reachable = "http://10.0.0.1:11434/v1", openAt(t, engine.Generic, "http://127.0.0.1:1")
		}, "nothing answers at the endpoint|OLLAMA_HOST", 1},
		{"endpoint that answers", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.Endpoint = "http://gpu.example.com/v1"
			o.Reachable, _ = site{"/v1/models": `{"data":[]}`}.open(t, engine.Generic)
		}, "answers at the endpoint", 0},
		{"endpoint that does not answer from here", engine.Ollama, ollama(loaded), func(t *testing.T, o *Options, _ *gateway) {
			o.Endpoint = "http://gpu.example.com/v1"
			o.Reachable, _ = site{}.open(t, engine.Generic)
		}, "note     the endpoint", 0},

		{"tunnel", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) { tunnel(o) }, "cloudflared version 1|edge answers at region1", 0},
		{"no cloudflared", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) {
			tunnel(o)
			o.Machine.Run = func(context.Context, string, ...string) ([]byte, error) { return nil, exec.ErrNotFound }
		}, "cloudflared does not run", 1},
		{"port 7844 blocked", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) {
			tunnel(o)
			o.Machine.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
				if strings.HasSuffix(address, ":7844") {
					return nil, blocked
				}
				a, _ := net.Pipe()
				return a, nil
			}
		}, "outbound port 7844 is blocked (i/o timeout)", 1},
		{"no internet", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) {
			tunnel(o)
			o.Machine.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, blocked }
		}, "api.trycloudflare.com:443", 1},
		{"hot GPU", engine.Ollama, ollama(loaded), func(_ *testing.T, o *Options, _ *gateway) {
			o.Machine.GPUs = func(context.Context) []*ktmsv1.NodeGPU {
				return []*ktmsv1.NodeGPU{{Name: "X", TemperatureCelsius: new(90.0), MemoryTotalBytes: new(int64(2 << 30)), MemoryFreeBytes: new(int64(1 << 30))}, {Name: "Y", UtilizationPercent: new(3.0)}}
			}
		}, "ok       GPU X, 90 °C, 1.0 of 2.0 GiB free|X is hot|ok       GPU Y, 3% busy", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := &gateway{}
			o := Options{
				NodeID: "n", Kind: c.kind, Target: registry.Target{Host: "gateway.example.com:9090"}, Registry: g.client(),
				Machine: Machine{
					OS: "linux", Now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
					Run:  func(context.Context, string, ...string) ([]byte, error) { return nil, exec.ErrNotFound },
					Dial: func(context.Context, string, string) (net.Conn, error) { return nil, blocked },
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
