// An arbiter in Go: it accepts a disputed change that is small and takes nothing away.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

const mostLines = 40

type message struct {
	ID     *int64          `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

type question struct {
	Agent string `json:"agent"`
	View  struct {
		Agent string `json:"agent"`
		Round int    `json:"round"`
	} `json:"view"`
	Trial struct {
		Proposal struct {
			ID string `json:"proposal_id"`
		} `json:"proposal"`
		Diff     string   `json:"diff"`
		NoLonger []string `json:"no_longer"`
	} `json:"trial"`
}

type object map[string]any

// changedLines counts the added and removed lines of a unified diff.
func changedLines(diff string) int {
	count := 0
	for _, line := range strings.Split(diff, "\n") {
		isHeader := strings.HasPrefix(line, "+++") || strings.HasPrefix(line, "---")
		if !isHeader && (strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-")) {
			count++
		}
	}
	return count
}

func decide(asked question) object {
	decision, reason := "accept", "The change is small and takes nothing away."
	if lines := changedLines(asked.Trial.Diff); lines > mostLines {
		decision, reason = "reject", fmt.Sprintf("%d changed lines are more than %d.", lines, mostLines)
	} else if len(asked.Trial.NoLonger) > 0 {
		decision, reason = "reject", strings.Join(asked.Trial.NoLonger, " ")
	}
	return object{"evaluation": object{
		"proposal_id": asked.Trial.Proposal.ID, "evaluator": asked.View.Agent, "round": asked.View.Round,
		"decision": decision, "reasoning": reason,
	}}
}

func answer(received message) (string, any) {
	var asked question
	if err := json.Unmarshal(received.Params, &asked); err != nil {
		return "error", object{"code": -32602, "message": err.Error()}
	}
	switch received.Method {
	case "agent/hello":
		return "result", object{"protocol": 1, "agent": asked.Agent, "capabilities": []string{"arbitrate"}}
	case "agent/arbitrate":
		return "result", decide(asked)
	case "agent/bye":
		return "result", object{}
	}
	return "error", object{"code": -32601, "message": "there is no " + received.Method}
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		var received message
		if err != nil || json.Unmarshal(line, &received) != nil {
			return
		}
		if received.ID == nil {
			continue // a notification
		}
		kind, content := answer(received)
		text, _ := json.Marshal(object{"jsonrpc": "2.0", "id": *received.ID, kind: content})
		fmt.Println(string(text))
		if received.Method == "agent/bye" {
			return
		}
	}
}
