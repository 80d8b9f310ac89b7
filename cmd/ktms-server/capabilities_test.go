package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/transport"
)

var update = flag.Bool("update", false, "write vendors/CAPABILITIES.md anew")

const (
	capabilitiesPage = "../../vendors/CAPABILITIES.md"
	capabilitiesHead = `# What becomes of each request field

Each vendor's dialect carries the fields of a request in its own way. This page, ` + "`GET /v1/capabilities`" + `, the
header ` + "`X-KTMS-Dropped-Params`" + ` and the encoders all read the same tables (` + "`vendors/*/fields.go`" + `); a test holds this page
to them, and the suite in ` + "`vendors/vendortest`" + ` proves each row against a strict upstream.

- **native**: the vendor has the field; the value arrives as it is.
- **translated**: the vendor has something that means the same.
- **dropped**: the vendor has nothing like it. The call goes on and says so; with ` + "`X-KTMS-Strict: true`" + ` it moves to
  the next model, and is refused with 400 when none is left.
- **refused**: going on would answer another question. The call moves to the next model.

Columns show a vendor's current models. Where older ones differ, ` + "`GET /v1/capabilities`" + ` says so per model. Empty cells
are native.
`
)

// pageVendors are the columns, in order; one stands for those that are alike.
var pageVendors = []string{vendors.OpenAI, vendors.Anthropic, vendors.Google, vendors.Bedrock, vendors.DeepSeek, vendors.Groq, vendors.Mistral, vendors.Ollama}

func TestCapabilitiesPage(t *testing.T) {
	speaking := dialects(transport.Limits{})
	var page, notes strings.Builder
	page.WriteString(capabilitiesHead + "\n| field | " + strings.Join(pageVendors, " | ") + " |\n|---" + strings.Repeat("|---", len(pageVendors)) + "|\n")
	for _, f := range vendors.Fields() {
		page.WriteString("| `" + string(f) + "` ")
		for _, name := range pageVendors {
			support := speaking[name].Fields(name, "")[f]
			cell := support.How.String()
			if support.How == vendors.Native {
				cell = ""
			}
			page.WriteString("| " + cell + " ")
			if support.Note != "" {
				notes.WriteString("- `" + string(f) + "`, " + name + ": " + support.Note + "\n")
			}
		}
		page.WriteString("|\n")
	}
	page.WriteString("\nAzure is as OpenAI; nodes of the local pool are as Ollama.\n\n## Notes\n\n" + notes.String())
	if *update {
		if err := os.WriteFile(capabilitiesPage, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(capabilitiesPage)
	if err != nil || string(written) != page.String() {
		t.Errorf("%s is out of step; go test ./cmd/ktms-server -run TestCapabilitiesPage -update writes it anew (%v)", capabilitiesPage, err)
	}
}

// Every vendor that a model may name is spoken to, or known to come later, and every dialect says what becomes of every
// field.
func TestEveryDialectHasAWholeTable(t *testing.T) {
	later := map[string]bool{vendors.TypeSafe: true, vendors.Local: true}
	speaking := dialects(transport.Limits{})
	for _, name := range []string{vendors.OpenAI, vendors.Anthropic, vendors.Google, vendors.DeepSeek, vendors.Groq, vendors.Mistral, vendors.Azure,
		vendors.Bedrock, vendors.Ollama, vendors.TypeSafe, vendors.Local, vendors.Demo} {
		vendor, spoken := speaking[name]
		if spoken == later[name] {
			t.Errorf("%s: spoken %v", name, spoken)
			continue
		}
		if spoken {
			if missing := vendor.Fields(name, "").Missing(); len(missing) > 0 {
				t.Errorf("%s says nothing of %v", name, missing)
			}
		}
	}
}
