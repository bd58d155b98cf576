// Package firewall has the rules that stand between the network and memberlist. memberlist trusts what it receives, so
// any peer that can reach its port can make it use memory, send packets or panic. Each file has one rule. It begins with
// what a hostile or unlucky peer could do through memberlist without the rule, and with what memberlist would have to do
// so that the rule can go.
//
// [Firewall] applies the rules. Package gossip runs its own protocols in front of memberlist's, through [Config].
package firewall
