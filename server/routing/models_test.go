package routing_test

import (
	"strings"
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/vendors"
)

func TestTable_Models(t *testing.T) {
	cfg := config([]*ktmsv1.ModelSpec{
		model("z", vendors.OpenAI), model("m", vendors.Anthropic), model("node", vendors.Local), model("echo", vendors.Demo),
		model("off", vendors.OpenAI, disabled), model("own", vendors.Ollama), model("a", vendors.OpenAI),
	})
	cfg.VendorKeys = []store.VendorKey{credential("k", vendors.OpenAI), credential("both", vendors.OpenAI), credential("both", vendors.Ollama)}
	cfg.Teams = []store.Team{{ID: "t", AllowedModels: []string{"a", "node", "own", "off"}}, {ID: "free"}}
	table := compile(t, cfg)
	for _, test := range []struct {
		name   string
		caller caller.Caller
		want   string
	}{
		{"no credential", caller.Caller{KeyID: "none"}, "echo node"},
		{"one vendor", caller.Caller{KeyID: "k"}, "a echo node z"},
		{"two vendors", caller.Caller{KeyID: "both"}, "a echo node own z"},
		{"the key's list", caller.Caller{KeyID: "k", AllowedModels: []string{"z", "m", "off"}}, "z"},
		{"the team's list", caller.Caller{KeyID: "k", TeamID: "t"}, "a node"},
		{"both lists", caller.Caller{KeyID: "both", TeamID: "t", AllowedModels: []string{"own", "z"}}, "own"},
		{"a team without a list", caller.Caller{KeyID: "k", TeamID: "free"}, "a echo node z"},
		{"a team that is not known yet", caller.Caller{KeyID: "k", TeamID: "new"}, ""},
	} {
		var got []string
		for _, m := range table.Models(&test.caller) {
			got = append(got, m.GetId())
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: got %v, want %s", test.name, got, test.want)
		}
	}
}
