package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/storetest"
)

const (
	// poolLease is crashLease for the slots of nodes, for the same reasons.
	poolLease = crashLease
	// longQueue is how long a request waits for a slot where nobody else serves: no test is to see it end. Where the cloud
	// does it is shortQueue.
	longQueue  = 2 * patience
	shortQueue = 300 * time.Millisecond
	// cloudName is what the cloud model behind the pool answers.
	cloudName = "cloud"
)

// poolSettings let heartbeats come every second, so that tests need not wait for them. A node is not offline because this
// machine is busy.
func poolSettings(t *testing.T) map[string]string {
	t.Helper()
	settings := shared(t)
	maps.Copy(settings, map[string]string{
		"NODE_HEARTBEAT_INTERVAL_SECONDS": "1", "NODE_HEARTBEAT_TTL_SECONDS": strconv.Itoa(int(patience.Seconds())),
		"NODE_SWEEP_INTERVAL": "1s", "NODE_ALLOW_LOCALHOST_ENDPOINTS": "true",
	})
	return settings
}

// poolWorld is a few gateways that share a pool of machines.
type poolWorld struct {
	*testing.T
	gateways []*process
	nodes    []*poolNode
	key      string
	client   *http.Client
}

// newPoolWorld starts gateways whose rule is the pool, and with reserve a cloud model behind it.
func newPoolWorld(t *testing.T, count int, settings map[string]string, reserve bool) *poolWorld {
	t.Helper()
	w := &poolWorld{T: t}
	for range count {
		w.gateways = append(w.gateways, startProcess(t, poolLease, settings))
	}
	transport := &http.Transport{MaxIdleConnsPerHost: poolCalls}
	t.Cleanup(transport.CloseIdleConnections)
	w.client = &http.Client{Transport: transport}

	admin := w.gateways[0].Admin
	minted, err := admin.MintAPIKey(t.Context(), &ktmsv1.MintAPIKeyRequest{Name: "client", Scopes: []string{"generate"}})
	if err != nil {
		t.Fatal(err)
	}
	w.key = minted.GetPlainKey()
	local := &ktmsv1.ModelSpec{Id: poolModel, Vendor: "local", Enabled: true, QueueTimeoutMs: int32(longQueue.Milliseconds())}
	chain := []*ktmsv1.ModelSpec{local}
	if reserve {
		local.QueueTimeoutMs = int32(shortQueue.Milliseconds())
		chain = append(chain, servertest.Model("reserve", cloud(t)))
		must(t)(admin.SetVendorKey(t.Context(), &ktmsv1.SetVendorKeyRequest{ApiKeyName: "client", Vendor: "openai", PlainKey: servertest.VendorKey}))
	}
	for _, m := range chain {
		must(t)(admin.UpsertModel(t.Context(), &ktmsv1.UpsertModelRequest{Model: m}))
	}
	rule := &ktmsv1.RuleSpec{Name: "all", Priority: 1, Enabled: true}
	for _, m := range chain {
		rule.Use = append(rule.Use, m.GetId())
	}
	replaced, err := admin.ReplaceRules(t.Context(), &ktmsv1.ReplaceRulesRequest{Rules: []*ktmsv1.RuleSpec{rule}})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range w.gateways {
		storetest.Eventually(t, patience, "every gateway knows the models", func() bool {
			got, err := g.Admin.GetConfig(t.Context(), &ktmsv1.GetConfigRequest{})
			return err == nil && got.GetConfigVersion() >= replaced.GetConfigVersion()
		})
	}
	return w
}

// cloud is a vendor that always answers.
func cloud(t *testing.T) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e := &scriptedEngine{name: cloudName}
		if out := (engineAnswer{ResponseWriter: rw}); strings.Contains(string(body), `"stream":true`) {
			out.events(engineHead, word(cloudName), engineEnd, "[DONE]")
			return
		}
		_, _ = io.WriteString(rw, e.answer())
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// poolNode is a machine: an engine, and the agent beside it.
type poolNode struct {
	w      *poolWorld
	id     string
	max    int
	kind   string
	key    string
	engine *child
	agent  *child
}

// join adds a machine with so many slots, whose agent speaks to one of the gateways, and waits until all know it. Every other
// one has an Ollama.
func (w *poolWorld) join(gateway, slots int) *poolNode {
	w.Helper()
	n := w.machine(slots)
	n.startAgent(gateway)
	n.awaitState(ktmsv1.NodeState_NODE_STATE_HEALTHY)
	return n
}

// machine is one without an agent yet.
func (w *poolWorld) machine(slots int) *poolNode {
	w.Helper()
	n := &poolNode{w: w, id: fmt.Sprintf("node-%d", len(w.nodes)), max: slots, kind: "vllm"}
	if len(w.nodes)%2 == 1 {
		n.kind = "ollama"
	}
	minted, err := w.gateways[0].Admin.MintNodeKey(w.Context(), &ktmsv1.MintNodeKeyRequest{Name: n.id, NodeId: n.id})
	if err != nil {
		w.Fatal(err)
	}
	n.key = minted.GetPlainKey()
	n.startEngine("127.0.0.1:0")
	w.nodes = append(w.nodes, n)
	return n
}

func (n *poolNode) startEngine(address string) {
	n.w.Helper()
	self, err := os.Executable()
	if err != nil {
		n.w.Fatal(err)
	}
	n.engine = startChild(n.w.T, true, []string{engineVariable + "=" + address}, self)
}

// startAgent starts the node's own agent; more arguments come last.
func (n *poolNode) startAgent(gateway int, more ...string) {
	n.w.Helper()
	n.agent = n.runAgent(gateway, n.key, n.id, more...)
}

// runAgent starts an agent beside the engine, with any key and id.
func (n *poolNode) runAgent(gateway int, key, id string, more ...string) *child {
	n.w.Helper()
	words := []string{agentProgram(n.w.T), "--proxy-addr", strings.TrimPrefix(n.w.gateways[gateway].GRPC, "http://"), "--node-id", id,
		"--engine", n.kind, "--engine-url", "http://" + n.engine.address, "--max-concurrent", strconv.Itoa(n.max)}
	return startChild(n.w.T, false, []string{"NODE_KEY=" + key}, append(words, more...)...)
}

// seen is the node as a gateway lists it, nil where it does not.
func (n *poolNode) seen(g *process) *ktmsv1.Node {
	n.w.Helper()
	return find(n.w.listed(g), n.id)
}

func find(nodes []*ktmsv1.Node, id string) *ktmsv1.Node {
	for _, node := range nodes {
		if node.GetNodeId() == id {
			return node
		}
	}
	return nil
}

// awaitState waits until every gateway that runs sees the node in a state; NODE_STATE_UNSPECIFIED is that of a node that is
// not there.
func (n *poolNode) awaitState(state ktmsv1.NodeState) {
	n.w.Helper()
	for _, g := range n.w.running() {
		storetest.Eventually(n.w, patience, n.id+" is "+state.String(), func() bool {
			list, err := g.Admin.ListNodes(n.w.Context(), &ktmsv1.ListNodesRequest{})
			return err == nil && find(list.GetNodes(), n.id).GetState() == state
		})
	}
}

// books asks the engine.
func (n *poolNode) books() (got books) {
	n.w.Helper()
	n.ask(http.MethodGet, "/books", nil, &got)
	return got
}

// behaves tells the engine how to behave from now on.
func (n *poolNode) behaves(c conduct) {
	n.w.Helper()
	n.ask(http.MethodPost, "/conduct", c, nil)
}

func (n *poolNode) ask(method, path string, in, out any) {
	n.w.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		n.w.Fatal(err)
	}
	req, err := http.NewRequestWithContext(n.w.Context(), method, "http://"+n.engine.address+path, bytes.NewReader(body))
	if err != nil {
		n.w.Fatal(err)
	}
	resp, err := n.w.client.Do(req)
	if err != nil {
		n.w.Fatal(err)
	}
	defer resp.Body.Close()
	if out != nil {
		if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
			n.w.Fatal(err)
		}
	}
	_, _ = io.Copy(io.Discard, resp.Body)
}

// running are the gateways that were not ended.
func (w *poolWorld) running() (all []*process) {
	for _, g := range w.gateways {
		select {
		case <-g.exited:
		default:
			all = append(all, g)
		}
	}
	return all
}

// listed are the nodes as a gateway sees them, of which there are some.
func (w *poolWorld) listed(g *process) []*ktmsv1.Node {
	w.Helper()
	list, err := g.Admin.ListNodes(w.Context(), &ktmsv1.ListNodesRequest{})
	if err != nil || len(list.GetNodes()) == 0 {
		w.Fatalf("a gateway lists %v, %v", list, err)
	}
	return list.GetNodes()
}

// inFlight is how many slots are taken, as a gateway sees it, and whether anything else is left of calls.
func (w *poolWorld) inFlight(g *process) (slots int, queued bool) {
	w.Helper()
	for _, n := range w.listed(g) {
		slots += int(n.GetInFlight())
		queued = queued || n.GetQueuedPromptTokens() != 0 || n.GetIdleSlots() != 0
	}
	return slots, queued
}

// held is how many requests the engines keep.
func (w *poolWorld) held() (sum int) {
	w.Helper()
	for _, n := range w.nodes {
		sum += n.books().Held
	}
	return sum
}

// served is how many answers the engines gave in full.
func (w *poolWorld) served() (sum int) {
	w.Helper()
	for _, n := range w.nodes {
		sum += n.books().Served
	}
	return sum
}

// release lets go what the engines keep.
func (w *poolWorld) release(c conduct) {
	w.Helper()
	c.Release = true
	for _, n := range w.nodes {
		n.behaves(c)
	}
}

// within is the world of a part of its test.
func (w *poolWorld) within(t *testing.T) *poolWorld {
	part := *w
	part.T, part.nodes = t, nil
	for _, n := range w.nodes {
		same := *n
		same.w = &part
		part.nodes = append(part.nodes, &same)
	}
	return &part
}

// free waits until no slot is taken.
func (w *poolWorld) free() {
	w.Helper()
	for _, g := range w.running() {
		storetest.Eventually(w, patience, "no slot is taken", func() bool {
			slots, queued := w.inFlight(g)
			return slots == 0 && !queued
		})
	}
}

// notOverbooked holds that no engine ever had more requests than slots.
func (w *poolWorld) notOverbooked() {
	w.Helper()
	for _, n := range w.nodes {
		if got := n.books(); got.Peak > n.max {
			w.Errorf("%s has %d slots and had %d requests at a time", n.id, n.max, got.Peak)
		}
	}
}
