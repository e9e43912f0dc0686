# An agent in Perl: it adds a check to methods of its class that take a negative amount, and accepts what others propose.
use strict;
use warnings;
use JSON::PP;

my $json = JSON::PP->new->utf8->canonical;
my $name = "";
$| = 1;

sub hello {
    my ($params) = @_;
    $name = $params->{agent};
    return { protocol => 1, agent => $name, program => "amounts 1.0", capabilities => [ "propose", "evaluate" ] };
}

# Return the name of an amount that a method takes unchecked and the method with a check, or nothing.
sub checked {
    my ($text) = @_;
    my ( $head, $body ) = $text =~ /\A(.*?def [^\n]*:\n)(.+)\z/s or return;
    my ($amount) = $head =~ /\b(amount|price|quantity): (?:int|float)\b/ or return;
    return if $body =~ /\b$amount\s*</;
    my ($indent) = $body =~ /\A([ \t]+)/;
    my $check = qq{${indent}if $amount < 0:\n$indent    raise ValueError("$amount must not be negative")\n};
    return ( $amount, $head . $check . $body );
}

sub propose {
    my ($view) = $_[0]{view};
    my %tried = map { $_->{proposal}{code_change}{target} => 1 } grep { $_->{proposal}{code_change} } @{ $view->{history} };
    for my $symbol ( $view->{limit} ? @{ $view->{source}{symbols} || [] } : () ) {
        next if $symbol->{target} !~ /\./ || $tried{ $symbol->{target} };    # the class itself, or refused before
        my ( $amount, $text ) = checked( $symbol->{text} ) or next;
        my $change = {
            file_path   => $view->{source}{file_path}, target    => $symbol->{target},
            change_type => "modify",                   operation => "replace_symbol",
            old_code    => $symbol->{text},            new_code  => $text,
            base_sha256 => $symbol->{sha256},
        };
        return { proposals => [ {
            proposal_id => "check", round => $view->{round}, src => $name, intent => "add_validation",
            title => "Refuse a negative $amount in $symbol->{target}", reason => "Nothing checks it.",
            code_change => $change,
        } ] };
    }
    return { proposals => [] };
}

sub evaluate {
    my ($params) = @_;
    return { evaluations => [ map { {
        proposal_id => $_->{proposal}{proposal_id}, evaluator => $name, round => $params->{view}{round},
        decision    => "accept",                    reasoning => "It passed the gate.",
    } } @{ $params->{trials} } ] };
}

my %methods = (
    "agent/hello" => \&hello, "agent/propose" => \&propose, "agent/evaluate" => \&evaluate, "agent/bye" => sub { {} },
);
while ( my $line = <STDIN> ) {
    my $message = $json->decode($line);
    next unless defined $message->{id};    # a notification
    my $method = $methods{ $message->{method} };
    my %answer = $method
        ? ( result => $method->( $message->{params} ) )
        : ( error => { code => -32601, message => "there is no $message->{method}" } );
    print $json->encode( { jsonrpc => "2.0", id => $message->{id}, %answer } ), "\n";
    last if $message->{method} eq "agent/bye";
}
