// Package api_test holds the protos to what users were promised.
package api_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/ai-process/ktms/api/gen/ktms/v1" // registers the messages
)

// examples are the request bodies that the manual shows, each with the method that takes it, or with the message that
// it is a part of.
var examples = map[string]string{
	"cancel_batch.json":         "ktms.v1.GatewayService/CancelBatch",
	"create_organization.json":  "ktms.v1.AdminService/CreateOrganization",
	"create_team.json":          "ktms.v1.AdminService/CreateTeam",
	"generate_text.json":        "ktms.v1.GatewayService/GenerateText",
	"generate_text_first.json":  "ktms.v1.GatewayService/GenerateText",
	"get_batch.json":            "ktms.v1.GatewayService/GetBatch",
	"get_embeddings.json":       "ktms.v1.GatewayService/GetEmbeddings",
	"get_spend.json":            "ktms.v1.AdminService/GetSpend",
	"judge.json":                "ktms.v1.GatewayService/Judge",
	"list_batch_results.json":   "ktms.v1.GatewayService/ListBatchResults",
	"mint_api_key.json":         "ktms.v1.AdminService/MintAPIKey",
	"mint_api_key_console.json": "ktms.v1.AdminService/MintAPIKey",
	"mint_api_key_first.json":   "ktms.v1.AdminService/MintAPIKey",
	"mint_api_key_team.json":    "ktms.v1.AdminService/MintAPIKey",
	"mint_node_key.json":        "ktms.v1.AdminService/MintNodeKey",
	"replace_rules.json":        "ktms.v1.AdminService/ReplaceRules",
	"replace_rules_first.json":  "ktms.v1.AdminService/ReplaceRules",
	"rule_speech.json":          "ktms.v1.RuleSpec",
	"set_api_key_policy.json":   "ktms.v1.AdminService/SetAPIKeyPolicy",
	"set_spend_limit_key.json":  "ktms.v1.AdminService/SetSpendLimit",
	"set_spend_limit_user.json": "ktms.v1.AdminService/SetSpendLimit",
	"set_vendor_key.json":       "ktms.v1.AdminService/SetVendorKey",
	"set_vendor_key_first.json": "ktms.v1.AdminService/SetVendorKey",
	// Of the chapter on nodes.
	"set_vendor_key_ollama.json": "ktms.v1.AdminService/SetVendorKey",
	"submit_batch.json":          "ktms.v1.GatewayService/SubmitBatch",
	"upsert_model.json":          "ktms.v1.AdminService/UpsertModel",
	"upsert_model_first.json":    "ktms.v1.AdminService/UpsertModel",
	"upsert_model_local.json":    "ktms.v1.AdminService/UpsertModel",
	"upsert_model_ollama.json":   "ktms.v1.AdminService/UpsertModel",
}

const folder = "testdata/manual"

// TestManualExamples decodes every example into its message, knowing every field, and checks it against the rules.
func TestManualExamples(t *testing.T) {
	t.Parallel()
	validator, err := protovalidate.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range slices.Sorted(maps.Keys(examples)) {
		t.Run(strings.TrimSuffix(file, ".json"), func(t *testing.T) {
			t.Parallel()
			message := newMessage(t, examples[file])
			if err := protojson.Unmarshal(readExample(t, file), message); err != nil {
				t.Fatalf("%s does not decode: %v", message.ProtoReflect().Descriptor().FullName(), err)
			}
			if proto.Size(message) == 0 {
				t.Fatal("the example sets no field")
			}
			if err := validator.Validate(message); err != nil {
				t.Fatalf("%s is refused: %v", message.ProtoReflect().Descriptor().FullName(), err)
			}
		})
	}
}

// TestManualExamplesAreListed finds files that nothing checks.
func TestManualExamplesAreListed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if examples[filepath.Base(file)] == "" {
			t.Errorf("%s is not in the table of examples", file)
		}
	}
}

// TestOpenAIExamples checks the bodies that belong to the OpenAI-compatible door. Their meaning is tested there.
func TestOpenAIExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(folder, "openai", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("there are no examples")
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(content) {
			t.Errorf("%s is not JSON", file)
		}
	}
}

// newMessage makes the message that a method takes, or that the name names.
func newMessage(t *testing.T, name string) proto.Message {
	t.Helper()
	service, method, isMethod := strings.Cut(name, "/")
	descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		t.Fatalf("%s: %v", service, err)
	}
	full := descriptor.FullName()
	if isMethod {
		found := descriptor.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(method))
		if found == nil {
			t.Fatalf("%s has no method %s", service, method)
		}
		full = found.Input().FullName()
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(full)
	if err != nil {
		t.Fatalf("%s: %v", full, err)
	}
	return kind.New().Interface()
}

func readExample(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	return content
}
