process SPINIMPUTE_IMPUTE {
    tag "${meta.id}"
    label 'process_medium'

    conda "${moduleDir}/environment.yml"
    container "spinimpute:0.1.0"

    input:
    tuple val(meta), path(vcf), path(index), path(panel), path(map), val(region)

    output:
    tuple val(meta), path("${prefix}.${extension}", glob: false), emit: vcf
    tuple val(meta), path("${prefix}.${extension}.${suffix}", glob: false), emit: index
    tuple val(meta), path("*_mqc.json"), emit: multiqc, optional: true
    tuple val("${task.process}"), val('spinimpute'), eval("spinimpute --version | sed 's/spinimpute //'"), emit: versions_spinimpute, topic: versions

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    prefix = task.ext.prefix ?: "${meta.id}"
    extension = args =~ /(-O|--output-type)[ =]?b/ ? 'bcf' : 'vcf.gz'
    suffix = extension == 'bcf' ? 'csi' : 'tbi'
    // Nextflow leaves some special characters of file names, and all of other values, to the shell.
    def quote = { text -> "'" + text.toString().replace("'", "'\\''") + "'" }
    def map_option = map ? "--map ${quote(map)}" : ''
    def region_option = region ? "--region ${quote(region)}" : ''
    """
    spinimpute impute \\
        --vcf ${quote(vcf)} \\
        --panel ${quote(panel)} \\
        ${map_option} \\
        ${region_option} \\
        --threads ${task.cpus} \\
        ${args} \\
        --quiet \\
        --out ${quote("${prefix}.${extension}")}
    """

    stub:
    def args = task.ext.args ?: ''
    prefix = task.ext.prefix ?: "${meta.id}"
    extension = args =~ /(-O|--output-type)[ =]?b/ ? 'bcf' : 'vcf.gz'
    suffix = extension == 'bcf' ? 'csi' : 'tbi'
    // Nextflow leaves some special characters of file names, and all of other values, to the shell.
    def quote = { text -> "'" + text.toString().replace("'", "'\\''") + "'" }
    def multiqc = args =~ /--multiqc[ =]('[^']+'|"[^"]+"|\S+)/
    def touch_multiqc = multiqc ? "touch ${multiqc[0][1]}" : ''
    """
    echo '' | gzip > ${quote("${prefix}.${extension}")}
    touch ${quote("${prefix}.${extension}.${suffix}")}
    ${touch_multiqc}
    """
}
