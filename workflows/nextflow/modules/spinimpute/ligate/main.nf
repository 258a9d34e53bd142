process SPINIMPUTE_LIGATE {
    tag "${meta.id}"
    label 'process_low'

    conda "${moduleDir}/environment.yml"
    container "spinimpute:0.1.0"

    input:
    tuple val(meta), path(chunks), path(indexes)

    output:
    tuple val(meta), path("${prefix}.vcf.gz", glob: false), path("${prefix}.vcf.gz.tbi", glob: false), emit: vcf_index
    tuple val("${task.process}"), val('spinimpute'), eval("spinimpute --version | sed 's/spinimpute //'"), emit: versions_spinimpute, topic: versions

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    prefix = task.ext.prefix ?: "${meta.id}"
    // Nextflow leaves some special characters of file names, and all of other values, to the shell.
    def quote = { text -> "'" + text.toString().replace("'", "'\\''") + "'" }
    def chunk_list = chunks instanceof List ? chunks : [chunks]
    def quoted_chunks = chunk_list.collect { chunk -> quote(chunk) }.join(' ')
    """
    spinimpute ligate \\
        --threads ${task.cpus} \\
        ${args} \\
        --quiet \\
        --out ${quote("${prefix}.vcf.gz")} \\
        ${quoted_chunks}
    """

    stub:
    prefix = task.ext.prefix ?: "${meta.id}"
    // Nextflow leaves some special characters of file names, and all of other values, to the shell.
    def quote = { text -> "'" + text.toString().replace("'", "'\\''") + "'" }
    """
    echo '' | gzip > ${quote("${prefix}.vcf.gz")}
    touch ${quote("${prefix}.vcf.gz.tbi")}
    """
}
